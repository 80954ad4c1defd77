"""The last block's attention, and what the model answers if it were another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.audit.attention import Probabilities, content_tokens
from lrptrain.audit.distances import as_distribution
from lrptrain.relevance.attribute import as_recording
from lrptrain.relevance.methods.attention import pooled_row
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.recording import Inputs, Recording, explained_input, run_on_tape
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import run
from lrptrain.relevance.tape.sample_axes import join_samples


@dataclass(eq=False)
class LastBlock:
    """Everything before the last block's attention is constant: only what follows is computed again, from the tape.

    Attributes:
        recording: A forward pass.
        usable: The content tokens of a map.
    """

    recording: Recording
    usable: Bool[Tensor, "batch tokens"]

    @cached_property
    def attention(self) -> Probabilities:
        """As the model computed it."""
        return self.recording.attention[-1].detach()

    @cached_property
    def map(self) -> Float[Tensor, "batch tokens"]:
        """The attention that is tested, over the content tokens; see `lrptrain.audit.attention`."""
        row = pooled_row(self.recording.pooling, self.attention.mean(1))
        return as_distribution(self.recording.layout.content(row), self.usable).detach()

    @cached_property
    def content(self) -> Bool[Tensor, "batch length"]:
        """The content tokens where they stand in the sequence."""
        return self.placed(self.usable)

    def placed(self, values: Tensor) -> Tensor:
        """Values of a map, `[batch, tokens]`, where the tokens stand in the sequence; 0 elsewhere."""
        layout = self.recording.layout
        place = torch.tensor(layout.positions, device=values.device).expand_as(values)
        return values.new_zeros(len(values), layout.length).scatter(1, place, values)

    def spread(self, weights: Float[Tensor, "batch *rows length"]) -> Probabilities:
        """Attention whose rows that the classifier reads give the content tokens weight as told.

        They share what weight the content tokens have in that row, as far as the row may attend to them.

        Args:
            weights: One row for all heads, or one per head and row; not negative.
        """
        own, content = self.attention, self.content[:, None, None]
        weights = weights[:, None, None] if weights.ndim == 2 else weights
        wanted = torch.where(content & (own > 0), weights.to(own.dtype), 0)
        total = wanted.sum(-1, keepdim=True)
        mass = torch.where(content, own, 0).sum(-1, keepdim=True)
        new = torch.where(content, wanted * (mass / torch.where(total > 0, total, 1)), own)
        read = (self.recording.pooling > 0)[:, None, :, None]
        return torch.where(read & (total > 0), new, own)

    def logits(self, attention: Probabilities) -> Float[Tensor, "batch classes"]:
        """What the model answers with this attention in its last block. Gradients flow to it where enabled."""
        block = self.recording.blocks[-1]
        joined = join_samples(attention, self.recording.propagator.axis(block), block.shape)
        known = {**self._constants, block: joined.to(block.tensor.dtype)}
        return run(self._tail, known)[self.recording.output]

    @cached_property
    def _tail(self) -> list[Node]:
        changed, tail = {self.recording.blocks[-1]}, []
        for node in self.recording.tape.nodes:
            if changed.intersection(node.inputs):
                node.check_constants()
                changed.update(node.outputs)
                tail.append(node)
        return tail

    @cached_property
    def _constants(self) -> dict[Value, Tensor]:
        made = {value for node in self._tail for value in node.outputs}
        needed = {value for node in self._tail for value in node.inputs} - made - {self.recording.blocks[-1]}
        return {value: value.tensor.detach() for value in needed}


def last_blocks(model: nn.Module, inputs: Inputs, at_once: int) -> Iterator[LastBlock]:
    """The last block of at most so many samples at a time; call it within `evaluating`.

    Raises:
        ValueError: If `at_once` is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if at_once < 1:
        raise ValueError(f"at_once must be 1 or more, not {at_once}")
    samples = explained_input(inputs)[1].shape[0]
    for start in range(0, samples, at_once):
        part = some(inputs, slice(start, start + at_once))
        with torch.enable_grad():
            tape, output = run_on_tape(unwrap(model), part, frugal=True)
            recording = as_recording(tape, output, model, part)
        yield LastBlock(recording, content_tokens(part, len(recording.layout.positions)))


def some(inputs: Inputs, rows: slice) -> Inputs:
    """The inputs of some samples."""
    if not isinstance(inputs, Mapping):
        return inputs[rows]
    samples = explained_input(inputs)[1].shape[0]
    return {name: x[rows] if isinstance(x, Tensor) and x.shape[:1] == (samples,) else x for name, x in inputs.items()}
