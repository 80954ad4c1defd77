"""From relevance of the input's numbers to relevance per token."""

from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import RelevanceMaps


def input_maps(recording: Recording, relevance: Float[Tensor, "batch ..."]) -> RelevanceMaps:
    """Sum relevance over the places and features of every token; see `ExplainedInput` for each kind of input."""
    return RelevanceMaps(recording.explained.scores(relevance), recording.explained.map(relevance))
