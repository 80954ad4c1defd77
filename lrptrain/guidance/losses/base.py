"""What a guidance loss is: its registry, what it may need, and what it is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED, TokenAnnotation
from lrptrain.batch.task import CLASSES, Task, of_all_labels
from lrptrain.guidance.evidence import at_tokens
from lrptrain.guidance.swap import Swap, Swapped
from lrptrain.relevance import Relevance
from lrptrain.relevance.default import GUIDANCE_METHODS, check_method, first_that_serves
from lrptrain.relevance.passes.interception import InterceptedForward
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import get_method


class Needs(IntEnum):
    """What a loss needs of a training step, in the order in which the losses of a step are computed."""

    MAP = 0
    """A relevance map, and so a recorded forward pass, a method that can be trained through, and perhaps a label."""
    RECORDING = 1
    """A recorded forward pass."""
    SECOND_PASS = 2
    """Another forward pass, with an input of its own; the step's own pass is not recorded for it."""


@dataclass(frozen=True)
class LossSum:
    """A loss on some samples, as a sum and a count: so several processes can take the mean over all samples of theirs.

    Attributes:
        total: The sum over the samples that can be judged, with its graph.
        count: The number of samples that can be judged.
    """

    total: Float[Tensor, ""]
    count: Int[Tensor, ""]

    @classmethod
    def over(cls, values: Float[Tensor, " answers"], judged: Bool[Tensor, " batch"]) -> "LossSum":
        """Sum the mean over the answers of each sample over those that can be judged; the others get no gradient."""
        judged, values = judged.to(values.device), values.view(len(judged), -1).mean(1)
        # `where`, not a product: 0 times nan is nan, and a sample that cannot be judged may well have a loss of nan.
        return cls(torch.where(judged, values, 0).sum(), judged.sum())


@dataclass(frozen=True)
class MapSettings:
    """Which relevance maps the losses on maps judge.

    Attributes:
        method: A relevance method that can be trained through; None for the first of
            `lrptrain.relevance.default.GUIDANCE_METHODS` that can serve the model.
        options: The options of the method.
        target: Whether to explain the class of the label, or the predicted one.
    """

    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Literal["label", "predicted"] = "label"

    @property
    def methods(self) -> Sequence[str]:
        """The methods that are tried, the first one first."""
        return check_method(self.method, self.options, GUIDANCE_METHODS)


@dataclass(eq=False)
class GuidedBatch:
    """One intercepted forward pass with its annotations; what several losses share is computed once, when needed.

    Attributes:
        forward: The call of the model in the user's training step.
        annotation: 1 evidence, 0 not, 255 ignored, of all samples, as `evidence` makes it.
        label: The class indices of all samples, or 0 and 1 of each of several labels; None unless a map needs it.
        guided: The indices of the guided samples.
        maps: Which relevance maps to compute.
        generator: The random numbers of the swaps.
        swap: What is swapped.
        task: What the model's output means.
    """

    forward: InterceptedForward
    annotation: Shaped[Tensor, " batch *area"]
    label: Int[Tensor, " batch *labels"] | None
    guided: Int[Tensor, " guided"]
    maps: MapSettings = field(default_factory=MapSettings)
    generator: torch.Generator | None = None
    swap: Swap = field(default_factory=Swap)
    task: Task = CLASSES

    @cached_property
    def recording(self) -> Recording:
        """The recorded step's own pass (all samples); if that was not recorded, a new pass of the guided samples."""
        if self._is_recorded:
            return self.forward.recording()
        first = get_method(self.maps.methods[0], {})
        return self.forward.recording(self.guided, first.in_full_precision(self.maps.options))

    @cached_property
    def recorded_annotation(self) -> Shaped[Tensor, " recorded *area"]:
        """The annotation of the recording's samples; what is not guided is ignored."""
        if not self._is_recorded:
            return self.annotation[self.guided]
        # e.g. guided [1, 3] of 5 samples: 0, 2 and 4 become 255 throughout, and so have no part in any loss
        per_sample = self._unguided.view(-1, *[1] * (self.annotation.ndim - 1))
        return self.annotation.masked_fill(per_sample, IGNORED)

    @cached_property
    def relevance(self) -> Relevance:
        """The relevance maps of the recording's samples, with their graph."""
        recording = self.recording
        target: Any = self._recorded_label if self.maps.target == "label" else None
        if self.task.has_labels:  # what is there speaks for yes, and against no; what nobody knows for nothing
            yes = recording.logits.detach() > 0 if target is None else target > 0
            target = of_all_labels(torch.where(yes, 1.0, -1.0) * (1 if target is None else target >= 0))

        def explain(method: str) -> Relevance:
            if self.maps.method is None:
                recording.check_default(method)
            return recording.attribute(target, method, create_graph=True, **self.maps.options)

        return first_that_serves(recording.model, self.maps.methods, explain)

    @cached_property
    def token_annotation(self) -> TokenAnnotation:
        """The annotation at the tokens of the maps."""
        return at_tokens(self.recorded_annotation, self.relevance.grid, self.relevance.scores.shape[1])

    def swapped(self) -> Swapped:
        """Swap what lies outside the evidence, or what else was asked for, with other samples of the batch."""
        return self.swap(self.forward.explained, self.annotation, self.generator, arguments=self.forward.arguments)

    @property
    def _is_recorded(self) -> bool:
        return self.forward.tape is not None

    @property
    def _unguided(self) -> Bool[Tensor, " batch"]:
        unguided = torch.ones(self.forward.samples, dtype=torch.bool, device=self.annotation.device)
        unguided[self.guided] = False
        return unguided

    @property
    def _recorded_label(self) -> Int[Tensor, " recorded *labels"] | None:
        """The label of the recording's samples; any valid class where a sample is not guided and may have none."""
        if self.label is None:
            return None
        if not self._is_recorded:
            return self.label[self.guided]
        # A label of -1 has no logit. The map of such a sample is computed for class 0, and no loss looks at it.
        unguided = self._unguided.to(self.label.device)
        return self.label.masked_fill(unguided.view(-1, *[1] * (self.label.ndim - 1)), 0)


@dataclass(frozen=True)
class GuidanceLoss:
    """A loss that a training step can be guided by.

    Attributes:
        name: What users call it.
        needs: What it needs of a training step.
        compute: The sum of the loss over the guided samples of a batch.
    """

    name: str
    needs: Needs
    compute: Callable[[GuidedBatch], LossSum]


LOSSES: dict[str, GuidanceLoss] = {}
"""All losses by name."""


def register_loss(
    name: str, needs: Needs
) -> Callable[[Callable[[GuidedBatch], LossSum]], Callable[[GuidedBatch], LossSum]]:
    """Register a function `GuidedBatch -> LossSum` as a guidance loss; for losses on maps see `register_map_loss`.

    Args:
        name: What users call it.
        needs: What it needs of a training step.

    Raises:
        ValueError: If another loss has this name.
    """

    def register(compute: Callable[[GuidedBatch], LossSum]) -> Callable[[GuidedBatch], LossSum]:
        if name in LOSSES:
            raise ValueError(f"there is a guidance loss {name!r} already")
        LOSSES[name] = GuidanceLoss(name, needs, compute)
        return compute

    return register
