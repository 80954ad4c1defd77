"""The last block's attention, and what the model predicts with another one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.auditing.attention import Probabilities, content_of_map
from lrptrain.auditing.distances import as_distribution
from lrptrain.relevance.attribute import as_recording
from lrptrain.relevance.methods.attention import pooled_row
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes.recording import Inputs, Recording, explained_input, run_on_tape
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import run
from lrptrain.relevance.tape.sample_axes import join_samples


@dataclass(eq=False)
class LastBlock:
    """A recorded forward pass, of which all that follows the last block's attention can be computed again.

    What comes before that attention is constant: it is not computed again, but read from the tape.

    Attributes:
        recording: The forward pass.
        usable: The content tokens of a map.
    """

    recording: Recording
    usable: Bool[Tensor, "batch tokens"]

    @cached_property
    def attention(self) -> Probabilities:
        """The attention as the model computed it."""
        return self.recording.attention[-1].detach()

    @cached_property
    def map(self) -> Float[Tensor, "batch tokens"]:
        """The attention that is tested, over the content tokens; see `lrptrain.auditing.attention`."""
        row = pooled_row(self.recording.pooling, self.attention.mean(1))
        return as_distribution(self.recording.layout.content(row), self.usable).detach()

    @cached_property
    def content(self) -> Bool[Tensor, "batch length"]:
        """The content tokens, as positions of the sequence: `[batch, length]`."""
        return self.in_sequence(self.usable)

    def in_sequence(self, values: Tensor) -> Tensor:
        """Return values of a map, `[batch, tokens]`, at the positions of their tokens, `[batch, length]`; else 0."""
        layout = self.recording.layout
        # scatter writes values[b, i] to position[i] of row b; special tokens keep 0.
        position = torch.tensor(layout.positions, device=values.device).expand_as(values)
        return values.new_zeros(len(values), layout.length).scatter(1, position, values)

    def reweighted(self, weights: Float[Tensor, "batch *rows length"]) -> Probabilities:
        """Return the attention with other weights of the content tokens, in the rows that the classifier reads.

        The content tokens keep the weight that they have together in a row, as far as the row may attend to them.

        Args:
            weights: One row for all heads, or one per head and row; not negative.
        """
        attention = self.attention  # [batch, heads, length, length]; the last axis is what is attended to
        content = self.content[:, None, None]
        # [batch, length] -> [batch, 1, 1, length], the same for all heads and rows
        weights = weights[:, None, None] if weights.ndim == 2 else weights
        allowed = torch.where(content & (attention > 0), weights.to(attention.dtype), 0)
        total = allowed.sum(-1, keepdim=True)
        # A row [CLS .4, a .3, b .3] with the weights a 2, b 1 becomes [CLS .4, a .4, b .2].
        mass = torch.where(content, attention, 0).sum(-1, keepdim=True)
        changed = torch.where(content, allowed * (mass / torch.where(total > 0, total, 1)), attention)
        # Rows that the classifier does not read stay, and rows that may attend to none of the weighted tokens.
        is_read = (self.recording.pooling > 0)[:, None, :, None]
        return torch.where(is_read & (total > 0), changed, attention)

    def logits(self, attention: Probabilities) -> Float[Tensor, "batch classes"]:
        """Return the model's logits with this attention in its last block. Gradients flow to it where enabled."""
        block = self.recording.blocks[-1]
        # As the model has it on the tape: some merge the batch with the heads.
        joined = join_samples(attention, self.recording.propagator.axis(block), block.shape)
        values = {**self._constants, block: joined.to(block.tensor.dtype)}
        return run(self._tail, values)[self.recording.output]

    @cached_property
    def _tail(self) -> list[Node]:
        """The operations that the attention of the last block reaches."""
        changed = {self.recording.blocks[-1]}
        tail = []
        # The tape is in the order of the forward pass, so one walk finds all that depends on the attention.
        for node in self.recording.tape.nodes:
            if changed.intersection(node.inputs):
                node.check_constants()
                changed.update(node.outputs)
                tail.append(node)
        return tail

    @cached_property
    def _constants(self) -> dict[Value, Tensor]:
        """What these operations read beside their own results and the attention."""
        read = {value for node in self._tail for value in node.inputs}
        computed = {value for node in self._tail for value in node.outputs}
        constants = read - computed - {self.recording.blocks[-1]}
        return {value: value.tensor.detach() for value in constants}


def last_blocks(model: nn.Module, inputs: Inputs, batch_size: int) -> Iterator[LastBlock]:
    """Yield the last block for at most `batch_size` samples at a time; call this within `evaluating`.

    Raises:
        ValueError: If `batch_size` is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    samples = explained_input(inputs)[1].shape[0]
    for start in range(0, samples, batch_size):
        part = select_samples(inputs, slice(start, start + batch_size))
        with torch.enable_grad():
            # Only what is needed is kept: no graph of the weights.
            tape, output = run_on_tape(unwrap(model), part, frugal=True)
            recording = as_recording(tape, output, model, part)
        yield LastBlock(recording, content_of_map(part, len(recording.layout.positions)))


def select_samples(inputs: Inputs, rows: slice) -> Inputs:
    """Return the inputs of some samples."""
    if not isinstance(inputs, Mapping):
        return inputs[rows]
    samples = explained_input(inputs)[1].shape[0]
    return {name: x[rows] if isinstance(x, Tensor) and x.shape[:1] == (samples,) else x for name, x in inputs.items()}
