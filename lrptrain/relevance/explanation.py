"""A recorded forward pass with the class that is explained: the gradients and the relevance of its logit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.propagation.propagate import Composite, real
from lrptrain.relevance.recording import Blocks, Recording
from lrptrain.relevance.tape.functions import enterable
from lrptrain.relevance.tape.tape import Value
from lrptrain.relevance.types import UnsupportedModelError


@dataclass(eq=False)
class Explanation:
    """What a method is given.

    Attributes:
        recording: The forward pass.
        target: Explained class of every sample.
        other: The class it is told apart from: the explained number is then the difference of their logits.
        create_graph: Whether the relevance is to be differentiated.
    """

    recording: Recording
    target: Int[Tensor, " batch"]
    other: Int[Tensor, " batch"] | None = None
    create_graph: bool = False

    @cached_property
    def direction(self) -> Float[Tensor, "batch classes"]:
        """1 at the target, -1 at the other class."""
        logits = real(self.recording.logits)
        chosen = torch.zeros_like(logits).scatter(1, self.target[:, None], 1.0)
        return chosen if self.other is None else chosen.scatter(1, self.other[:, None], -1.0)

    def explained(
        self, logits: Float[Tensor, "rows classes"], rows: Int[Tensor, " rows"] | None = None
    ) -> Float[Tensor, " rows"]:
        """The explained number of the samples `rows`, or of whole copies of the batch, one after the other."""
        if rows is None:
            rows = torch.arange(len(logits), device=logits.device) % self.recording.samples
        chosen = self.direction[rows].to(logits.dtype)
        return torch.where(chosen == 0, 0.0, chosen * logits).sum(1)

    @cached_property
    def attention_gradient(self) -> Blocks:
        """Gradient of the explained logit at the attention probabilities of every block, from one backward pass."""
        blocks = self.recording.blocks
        gradients = self.gradient([value.tensor for value in blocks])
        return [self.recording.per_head(value, gradient) for value, gradient in zip(blocks, gradients, strict=True)]

    def gradient(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Gradient of the explained logits; 0 for what they do not depend on."""
        with torch.enable_grad():
            explained = self.explained(self.recording.logits).sum()
        if not explained.requires_grad:
            raise UnsupportedModelError("the logits have no gradient: the forward pass detaches them from its input")
        with self.recording.tape.replaying():
            found = enterable(torch.autograd.grad)(
                explained, tensors, retain_graph=True, create_graph=self.create_graph, allow_unused=True
            )
        return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(tensors, found, strict=True)]

    def relevance(
        self, composite: Composite, keep: Sequence[Value], *, of_logit: bool = False, linear: bool = True
    ) -> list[Tensor]:
        """Propagate 1 from the explained logit, and -1 from the other class's, back to the values to keep.

        Args:
            composite: The rules.
            keep: Where relevance is asked for.
            of_logit: Propagate the logits themselves, instead of 1 and -1; for linear rules.
            linear: Whether the rules are linear in relevance, so that both classes can go in one walk. Those that
                normalise by sums of relevance are not: 1 and -1 would cancel to nothing.
        """
        output = self.recording.output
        start = self.direction * real(output.tensor) if of_logit else self.direction
        if linear or self.other is None:
            arrived = self.recording.walk.back({output: start}, composite, keep)
            return [arrived[value] for value in keep]
        starts = (torch.zeros_like(start).scatter(1, c[:, None], 1.0) for c in (self.target, self.other))
        one, two = (self.recording.walk.back({output: one_hot}, composite, keep) for one_hot in starts)
        return [one[value] - two[value] for value in keep]
