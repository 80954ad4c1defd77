"""A recorded forward pass with the class that is explained: the gradients and the relevance of its logit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.propagation.composite import Composite
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.functions import enterable
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.types import UnsupportedModelError

if TYPE_CHECKING:
    from lrptrain.relevance.passes.recording import Recording


@dataclass(eq=False)
class Explanation:
    """A recorded forward pass and the class to explain: what a method takes.

    Attributes:
        recording: The forward pass.
        target: The explained class of every sample.
        other: The class to compare with: the explained number is then the difference of the two logits.
        create_graph: Whether the relevance is to be differentiated.
        first_order: Whether gradients inside the relevance are then constants.
    """

    recording: "Recording"
    target: Int[Tensor, " batch"]
    other: Int[Tensor, " batch"] | None = None
    create_graph: bool = False
    first_order: bool = False

    @cached_property
    def direction(self) -> Float[Tensor, "batch classes"]:
        """1 at the target, -1 at the other class."""
        logits = at_least_float32(self.recording.output.tensor)
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

    def attention_gradient(self, blocks: Sequence[Value]) -> list[Float[Tensor, "batch heads length length"]]:
        """Gradient of the explained logit at the attention probabilities of some blocks, from one backward pass."""
        gradients = self.gradient(blocks)
        return [self.recording.per_head(block, x) for block, x in zip(blocks, gradients, strict=True)]

    def gradient(self, values: Sequence[Value]) -> list[Tensor]:
        """Gradient of the explained logits; 0 for what they do not depend on.

        Raises:
            UnsupportedModelError: If the gradient at a value is computed inside of a custom autograd function, or there
                is none at any value.
        """
        kernels = self.recording.watched.kernels
        # Of a value inside of fused attention, the gradient is made of that at the attention's output.
        fused = [None if kernels is None else kernels.holding(value) for value in values]
        places = [value if around is None else around.output for value, around in zip(values, fused, strict=True)]
        gradients = self._gradient(places)
        if gradients and all(gradient is None for gradient in gradients):  # a map of zeros: nothing would matter
            raise UnsupportedModelError(NO_GRADIENT)
        filled = [torch.zeros_like(x.tensor) if g is None else g for x, g in zip(places, gradients, strict=True)]
        inside = zip(values, fused, filled, strict=True)
        return [g if around is None else around.gradient_at(value, g) for value, around, g in inside]

    def _gradient(self, values: Sequence[Value]) -> list[Tensor | None]:
        """Gradients of the explained logits; None where the graph does not lead."""
        if any(value.hidden for value in values):
            raise UnsupportedModelError(
                "a custom autograd function makes the attention maps on its way, so that no gradient arrives at them"
            )
        reached = [value.edge for value in values if value.edge is not None]
        with torch.enable_grad():
            scale = seed_scale(self.recording.output.tensor) if self.create_graph else 1
            explained = scale * self.explained(self.recording.output.tensor).sum()
        if not explained.requires_grad:
            raise UnsupportedModelError("the logits have no gradient: the forward pass detaches them from its input")
        passed = self.recording.forward_pass
        with self.recording.watched.replaying():
            gradients_there = iter(
                enterable(torch.autograd.grad)(
                    explained,
                    reached,
                    retain_graph=passed is None or not passed.serves_once,
                    create_graph=self.create_graph and not self.first_order,
                    allow_unused=True,
                )
                if reached
                else ()
            )
        gradients = [None if value.edge is None else next(gradients_there) for value in values]
        return [x if x is None or scale == 1 else at_least_float32(x) / scale for x in gradients]

    def relevance(
        self, composite: Composite, keep: Sequence[Value], *, of_logit: bool = False, linear: bool = True
    ) -> list[Tensor]:
        """Propagate 1 from the explained logit, and -1 from the other class's, back to the values to keep.

        Args:
            composite: The rules.
            keep: Where relevance is asked for.
            of_logit: Propagate the logits themselves, instead of 1 and -1; for linear rules.
            linear: Whether the rules are linear in relevance, so that both classes can go in one pass. Those that
                normalise by sums of relevance are not: 1 and -1 would cancel to nothing. A user's rules never count as
                linear.
        """
        output = self.recording.output
        start = self.direction
        if of_logit:
            logits = at_least_float32(output.tensor)
            # A class that is ruled out by a logit of -inf passes nothing; 0 * inf would be NaN.
            start = start * logits.masked_fill((start == 0) & logits.isinf(), 0.0)
        propagator = self.recording.propagator
        # Nothing is known of a user's rules: they may well be normalised by sums of relevance.
        linear = linear and not propagator.has_custom_rule(composite)
        if linear or self.other is None:
            arrived = propagator.propagate({output: start}, composite, keep)
            propagator.check_order(output)  # here, so that an operation without a rule is named before
            return [arrived[value] for value in keep]
        of_target = torch.where(self.direction > 0, start, 0.0)
        of_other = torch.where(self.direction < 0, -start, 0.0)
        first, second = (propagator.propagate({output: x}, composite, keep) for x in (of_target, of_other))
        propagator.check_order(output)
        return [first[value] - second[value] for value in keep]


NO_GRADIENT = (
    "no gradient goes from the logits to where the method looks: the model detaches what it computes there (a frozen "
    "backbone?); attnlrp and lrp pass that, and leave_one_out needs no gradient"
)


def seed_scale(logits: Tensor) -> float:
    """Return the factor for a number of which a gradient is taken, if a loss is made of that gradient.

    The gradient is to be divided by it. In float16 the gradient would lose its smallest numbers, and the loss's
    gradient at it, which is as large as it is small, would overflow.
    """
    return 64.0 if logits.dtype == torch.float16 else 1.0
