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

    Attributes:
        loss: "swap", one of `lrptrain.guidance.LOSSES`, several as in "consistency+energy", or a weight for each by its
            name. "swap" adds no loss: the step itself is given the annotated samples with another sample's content in
            place of what is not annotated, and its own loss teaches the model not to need it. Its weight is the share
            of the samples that are swapped, up to 1.
        weight: A factor for all losses, applied as it is. By default 1 for losses with weights by name, and else as
            large as the task's gradient allows, up to 1; see `RelevanceGuidance`.
        method: The relevance method of the maps that `energy` and the other losses on maps judge: a differentiable one
            of `lrptrain.methods()`. By default `generic_attention`, and `attnlrp`, with a `RelevanceWarning`, for
            models without attention maps and where the logits are computed from several tokens, as a mean is. Under
            autocast, methods that would amplify its rounding (`transformer_attribution`, `lrp`, `epsilon_lrp`,
            `partial_lrp`) cost another forward pass, in float32.
        method_options: The options of the method.
        target: Whether maps explain the class of the label, or the predicted one.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        max_samples: The most samples of a batch that are guided; None for all.
        swap: What "swap" and "consistency" take from another sample: a name, a cue, a finding that holds one, or
            several of these. "outside" is everything that is not annotated. No annotation is used for "colour",
            "spectrum" (sharpness and texture), "grain", "light", "border" and "background" (all but the middle) of
            images, and for "length", "numbers", "punctuation" and the other families of
            `lrptrain.cues.family.FAMILIES` of texts. Of findings (`report.faults`, `monitor.findings`) the faults that
            the model relies on are swapped; a single finding that is no fault is swapped with a warning. "findings":
            what the run's own `RelevanceMonitor` finds, from then on.
        batch_adapter: Brings a batch of another form to the contract's names.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), `lrptrain.EachLabel()` of several labels per sample or `lrptrain.OneLabel(column)` of one of
            them, or `lrptrain.Regression(mean, std)`. By default classes, of which one logit tells two apart.
        compare_every_n_batches: In one batch of so many, the swap distance is measured and gradients are compared,
            which costs two forward and two backward passes; 0: never.
        on_error: "warn": a failure after the first guided batch is reported once, counted, and the batch goes unguided;
            "raise": it ends training.
        seed: The seed of the swaps.
        tokenizer: The tokenizer of the texts, where families of words are swapped by name: itself, its name or its
            folder. By default it is looked for in the datamodule, the dataset, the module and beside the weights.
        annotate: Makes the annotations, where batches hold none; see `RelevanceMonitor`. It sees images as the batch
            holds them, augmented, and is asked again where they change.
        explain: The parameter of the model's forward that is explained and swapped, where it takes several images or
            texts; by default the input of the batch.

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
