"""Methods on attention maps for models of windows and stages: which way a model is read, and its maps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.token_rows import TokenRows
from lrptrain.relevance.token_rows.maps import Parts, as_weighing, place_of_gradient, weighted
from lrptrain.relevance.tokens.attention_layers import AttentionLayer
from lrptrain.relevance.tokens.attentions import Attention
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError

_REFUSALS = (UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError)


@dataclass(eq=False)
class Stages:
    """A model whose maps are no maps of one sequence, so that a row of tokens goes through it operation by operation.

    Attributes:
        recording: The forward pass.
        refusal: Why its maps cannot be multiplied as matrices of one sequence.
    """

    recording: Recording
    refusal: Exception

    @property
    def rows(self) -> TokenRows:
        """The way of a row through the model."""
        return self.recording.token_rows

    @contextmanager
    def serving(self) -> Iterator[TokenRows]:
        """Name both reasons if no row can be followed either."""
        try:
            yield self.rows
        except _REFUSALS as error:
            raise type(self.refusal)(
                f"{self.refusal}; nor does a row of tokens go through all of it: {error}"
            ) from error

    def maps(self, row: Tensor) -> RelevanceMaps:
        """The scores of the input's tokens, of a row that has arrived at the input."""
        return RelevanceMaps(self.recording.explained.scores(row))


def layers_or_stages(recording: Recording, block: int, argument: str = "start_layer") -> list[AttentionLayer] | Stages:
    """The layers of a model that attends over one sequence, from a block on; or the model as stages.

    Args:
        recording: The forward pass.
        block: The first block; negative numbers count from the end.
        argument: What the user calls it, for messages.

    Raises:
        ValueError: If there is no such block.
    """
    refusal = _no_sequence(recording)
    return recording.attention_layers.layers(block, argument) if refusal is None else Stages(recording, refusal)


def _no_sequence(recording: Recording) -> UnsupportedMethodError | None:
    """Why the blocks do not attend over one and the same sequence, such as windows; None if they do."""
    rows = recording.token_rows
    shapes = [rows.attentions[number].block.shape[-2:] for number in rows.blocks]
    square = [i for i, (queries, keys) in enumerate(shapes) if queries == keys]
    oblong = [i for i, (queries, keys) in enumerate(shapes) if queries != keys]
    if oblong and (not square or oblong[0] < square[-1]):
        return UnsupportedMethodError(
            "the blocks attend over fewer keys than queries, so that their maps are not square"
        )
    try:
        _ = recording.length
    except UnsupportedMethodError as refusal:
        return refusal
    return None


def with_gradient(
    explanation: Explanation, attentions: Sequence[Attention], made: Callable[[Tensor], Tensor] = Tensor.relu
) -> Callable[[Attention], Parts]:
    """Of an attention, what is made of its map times the gradient at it; the positive part by default."""
    tape = explanation.recording.tape
    gradients = explanation.gradient([place_of_gradient(tape, attention) for attention in attentions])
    by_attention = dict(zip(attentions, gradients, strict=True))
    return lambda attention: weighted(tape, attention, by_attention[attention], made)


def with_relevance(
    explanation: Explanation, attentions: Sequence[Attention], relevance: Mapping[Value, Tensor]
) -> Callable[[Attention], Parts]:
    """Of an attention, the positive part of the gradient at its map times the relevance that arrives there."""
    gradients = explanation.gradient([attention.block for attention in attentions])
    by_attention = dict(zip(attentions, gradients, strict=True))

    def parts(attention: Attention) -> Parts:
        product = by_attention[attention] * relevance[attention.block]
        yield slice(None), as_weighing(attention, product.clamp(min=0))

    return parts


def as_it_is(product: Tensor) -> Tensor:
    """A product with its sign."""
    return product


def positive(numbers: Tensor) -> Callable[[Attention], Parts]:
    """Of one attention, the positive part of what belongs to its map."""

    def parts(attention: Attention) -> Parts:
        yield slice(None), as_weighing(attention, numbers.clamp(min=0))

    return parts
