"""How seeds and pseudo-masks are made."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lrptrain.relevance.registry import get_method
from lrptrain.segmentation.refinement import refinements
from lrptrain.segmentation.seeds import CHUNK, SCALES
from lrptrain.trainers.checks import check_normalisation


@dataclass(frozen=True)
class Recipe:
    """How seeds and pseudo-masks are made.

    Attributes:
        method: Of the seeds, one of `lrptrain.methods()`.
        options: Of the method.
        scales: Of the images.
        flip: Whether mirror images are averaged in.
        refine: One of `lrptrain.segmentation.refinement.refinements()`, or None.
        refine_options: Of the refinement.
        present: Which classes an image shows: by its "label" (a number, or one 0 or 1 per class), or "predicted".
        multi_label: Predicted are all classes with a logit above 0, not the one with the highest.
        masks: What true masks hold: "evidence" (1 evidence of the image's one class, 0 not) or "classes" (1 + class).
            255 is ignored.
        threshold: Of the background, for seeds and refined maps alike; else the best for each on validation images.
        margin: Pixels of a pseudo-mask are ignored where the map is nearer to the threshold than this.
        mean: Per channel, as the images were normalised with; without it they are stretched from minimum to maximum.
        std: Per channel.
        chunk: Maps per forward pass.

    Raises:
        UnsupportedMethodError: If the method, or an option of it, is unknown.
        ValueError: If another argument is none of those.
    """

    method: str = "transformer_attribution"
    options: dict[str, Any] = field(default_factory=dict)
    scales: Sequence[float] = SCALES
    flip: bool = True
    refine: str | None = "pixel_adaptive"
    refine_options: dict[str, Any] = field(default_factory=dict)
    present: Literal["label", "predicted"] = "label"
    multi_label: bool = False
    masks: Literal["evidence", "classes"] = "evidence"
    threshold: float | None = None
    margin: float = 0.1
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        get_method(self.method, self.options)
        check_normalisation(self.mean, self.std)
        if self.refine is not None and self.refine not in refinements():
            raise ValueError(f"refine must be one of {', '.join(refinements())} or None, not {self.refine!r}")
        if self.present not in ("label", "predicted") or self.masks not in ("evidence", "classes"):
            raise ValueError(
                f"present must be 'label' or 'predicted' and masks 'evidence' or 'classes', not {self.present!r} and "
                f"{self.masks!r}"
            )
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must lie in [0, 1), not {self.threshold}")
        if not 0 <= self.margin < 1:
            raise ValueError(f"margin must lie in [0, 1), not {self.margin}")
