"""The settings of seeds, of pseudo-masks and of the segmenter that is trained on them; they import no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lrptrain.trainers.checks import check_normalisation

SCALES = (1.0, 0.5, 1.5)
"""The factors by which images are resized for their seeds."""
CHUNK = 32
"""How many maps are computed in one forward pass."""
REFINE_OPTIONS = ("dilations", "iterations", "w1", "w2")
DEFAULT_THRESHOLD = 0.3
"""The threshold of the background where no true mask says which one fits: a share of each map's maximum."""

THRESHOLD_LINE = (
    "the background's threshold is the one that fits the true masks of the validation images best; where none has a "
    f"mask, it is {DEFAULT_THRESHOLD} (`threshold` in the config sets it)"
)
"""What is said at the start where no threshold is set."""


@dataclass(frozen=True)
class PseudoMaskConfig:
    """How seeds and pseudo-masks are made.

    Attributes:
        method: Attribution method of the seeds, one of `lrptrain.methods()`; None for the default one.
        options: Options of the method.
        scales: Factors by which images are resized; the maps of all scales are averaged.
        flip: Whether the maps of mirror images are averaged in, too.
        refine: The refinement, "pixel_adaptive"; None for none.
        refine_options: Options of the refinement, see `pixel_adaptive`.
        present: Where the classes of an image come from: "label" (a number, or a 0 or 1 per class) or "predicted".
        multi_label: Whether all classes with a logit above 0 are predicted, not only the one with the highest.
        masks: The values of true masks: "evidence" (1 for evidence of the image's one class, 0 for none) or "classes"
            (0 background, 1 + class). Pixels of 255 are ignored.
        threshold: The threshold of the background in [0, 1), for seeds and refined maps alike. None chooses for each
            the one that fits the true masks of the validation images best; where there are none, `DEFAULT_THRESHOLD`.
        margin: A pixel of a pseudo-mask is ignored up to this distance from the threshold, as a share of it in [0, 1).
            `experiments/segment_pets`, `segment_scenes` and `segment_folders` took the default.
        mean: The mean of each channel, with which images were normalised; without it images are stretched.
        std: Their standard deviation.
        chunk: The number of maps that are computed in one forward pass.
    """

    method: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    scales: Sequence[float] = SCALES
    flip: bool = True
    refine: str | None = "pixel_adaptive"
    refine_options: dict[str, Any] = field(default_factory=dict)
    present: Literal["label", "predicted"] = "label"
    multi_label: bool = False
    masks: Literal["evidence", "classes"] = "evidence"
    threshold: float | None = None
    margin: float = 0.15
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        # What knows methods takes seconds to import: the help of `lrptrain segment` should not wait for it.
        if self.method is not None or self.options:
            from lrptrain.relevance.default import check_method

            check_method(self.method, self.options)
        check_normalisation(self.mean, self.std)
        choices = {
            "refine": ("pixel_adaptive", None),
            "present": ("label", "predicted"),
            "masks": ("evidence", "classes"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, not {getattr(self, name)!r}")
        if unknown := sorted(set(self.refine_options) - set(REFINE_OPTIONS)):
            raise ValueError(f"refine_options has {unknown}; known are {', '.join(REFINE_OPTIONS)}")
        for name in ("threshold", "margin"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1), not {value}")


@dataclass(frozen=True)
class Training:
    """How the segmenter is trained.

    Attributes:
        max_epochs: The number of passes over the images with a pseudo-mask.
        batch_size: Images per step.
        lr: The peak of the learning rate, which follows one cycle.
        weight_decay: The weight decay of AdamW.
        smallest: The height and width of the smallest random window, as a share of the image's; None for no
            augmentation.
        seed: The seed of the decoder's weights and of the order of the images.
    """

    max_epochs: int = 20
    batch_size: int = 16
    lr: float = 5e-4
    weight_decay: float = 0.05
    smallest: float | None = 0.5
    seed: int = 0
