"""The options of a guidance, under any trainer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lrptrain.batch import BatchAdapter
from lrptrain.batch.task import Task, TaskName
from lrptrain.cues.annotator import Annotate
from lrptrain.guidance.swap_names import OUTSIDE, SwapOption
from lrptrain.trainers.checks import check_counts, check_on_error


@dataclass(frozen=True)
class GuidanceOptions:
    """What `RelevanceGuidance`, `lrptrain.guide` and `lrptrain.Guidance` are asked for, by these names.

    Examples:
        >>> from lrptrain.guidance import GuidanceOptions
        >>> GuidanceOptions("consistency+energy", swap="outside").max_samples is None
        True

    Attributes:
        loss: "swap", one of `lrptrain.guidance.LOSSES`, several as in "consistency+energy", or a weight for each by its
            name. "swap" adds no loss: your own step gets samples in which all but the annotation is another sample's.
            Its weight is the share of the samples that are swapped, up to 1.
        weight: A factor for all losses, applied as it is. By default 1 for losses with weights by name, and else as
            large as the task's gradient allows, up to 1; see `RelevanceGuidance`.
        method: The relevance method of `energy` and the other losses on maps: a differentiable one of
            `lrptrain.methods()`. By default `generic_attention`, and `attnlrp`, with a `RelevanceWarning`, for models
            without attention maps and where the logits come from several tokens, as a mean does. Under autocast,
            `transformer_attribution`, `lrp`, `epsilon_lrp` and `partial_lrp` cost another forward pass, in float32.
        method_options: The options of the method.
        target: Whether maps explain the class of the label, or the predicted one.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        max_samples: The most samples of a batch that are guided; None for all.
        swap: What "swap" and "consistency" take from another sample: a name, a cue, a finding, or several of these.
            "outside" is everything that is not annotated. No annotation is needed for "colour", "spectrum" (sharpness
            and texture), "grain", "light", "border" and "background" (all but the middle) of images, and for "length",
            "numbers", "punctuation" and the other families of `lrptrain.cues.family.FAMILIES` of texts. Of
            `monitor.findings` the shortcuts are swapped. "findings": what the run's own `RelevanceMonitor` finds.
        batch_adapter: Brings a batch of another form to the contract's names.
        task: What output and labels mean; see `RelevanceMonitor`.
        compare_every_n_batches: How often the swap distance is measured and gradients are compared; 0: never.
        on_error: "warn": a failure after the first guided batch is reported once, counted, and the batch goes unguided;
            "raise": it ends training.
        seed: The seed of the swaps.
        tokenizer: The tokenizer of the texts, its name or its folder, where words are swapped by name.
        annotate: Makes the annotations, where batches hold none; see `RelevanceMonitor`.
        explain: The parameter of the model's forward that is explained and swapped; by default the batch's input.

    Raises:
        ValueError: If a value is none of those that its option takes.
    """

    loss: str | Mapping[str, float]
    weight: float | None = None
    method: str | None = None
    method_options: dict[str, Any] | None = None
    target: Literal["label", "predicted"] = "label"
    sparse: bool = False
    max_samples: int | None = None
    swap: SwapOption = OUTSIDE
    batch_adapter: BatchAdapter | None = None
    task: TaskName | Task | None = None
    compare_every_n_batches: int = 50
    on_error: Literal["warn", "raise"] = "warn"
    seed: int = 0
    tokenizer: Any = None
    annotate: Annotate | None = None
    explain: str | None = None

    def __post_init__(self) -> None:
        check_counts(max_samples=1 if self.max_samples is None else self.max_samples)
        check_counts(0, compare_every_n_batches=self.compare_every_n_batches)
        check_on_error(self.on_error)
        if self.target not in ("label", "predicted"):
            raise ValueError(f"target must be 'label' or 'predicted', not {self.target!r}")

    @property
    def is_bounded(self) -> bool:
        """Whether the task's gradient bounds the guidance, as the user gives no weight."""
        return self.weight is None and isinstance(self.loss, str)
