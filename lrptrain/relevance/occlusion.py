"""What the model answers when it is given only some of a sample's patches or tokens."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.input_maps import patch_grid
from lrptrain.relevance.recording import Recording
from lrptrain.relevance.rerun import answers
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError


def number_of_tokens(recording: Recording) -> int:
    """Patches of an image, positions of a text: what can be taken away."""
    assert recording.tape.root is not None
    original = recording.tape.root.tensor
    rows, columns = patch_grid(recording) if original.ndim == 4 else (1, original.shape[1])
    return rows * columns


def answers_without(
    explanation: Explanation,
    kept: Bool[Tensor, "rows tokens"],
    rows: Int[Tensor, " rows"],
    *,
    baseline: float = 0.0,
    probability: bool = False,
) -> Float[Tensor, " rows"]:
    """The explained logit, or probability, of the samples `rows` when only the `kept` tokens are there.

    A patch is taken away by giving its pixels the value `baseline`; a token by giving its word embedding that value
    and, where the model was given an `attention_mask`, by masking it out there, too, so that no other token attends to
    it. The one token that a classifier reads stays in the mask, since some models let what is masked read nothing; and
    a text of which nothing is kept does (a softmax over nothing does not exist).
    """
    leaf = explanation.recording.tape.leaf
    assert leaf is not None
    original = leaf if explanation.create_graph else leaf.detach()
    values, mask = without(explanation.recording, original, kept, rows, baseline)
    return answers(explanation, values, rows, mask, probability=probability)


def without(
    recording: Recording,
    original: Float[Tensor, "batch ..."],
    kept: Bool[Tensor, "rows tokens"],
    rows: Int[Tensor, " rows"],
    baseline: float = 0.0,
) -> tuple[Float[Tensor, "rows ..."], Tensor | None]:
    """What to run the model on, see `rerun`: pixels or embeddings of the samples `rows`, and the mask of texts."""
    if original.ndim == 3:
        return torch.where(kept[..., None], original[rows], baseline), _mask(recording, kept, rows)
    cells = kept.to(torch.float32).unflatten(1, (1, *patch_grid(recording)))
    pixels = F.interpolate(cells, original.shape[-2:], mode="nearest-exact") > 0
    return torch.where(pixels, original[rows], baseline), None


def _mask(recording: Recording, kept: Tensor, rows: Tensor) -> Tensor | None:
    if recording.padding is None:
        return None
    given = recording.padding[rows]
    empty = ~(kept & given.bool()).any(1, keepdim=True)
    return torch.where(kept | empty | _read_alone(recording)[rows], given, torch.zeros_like(given))


def _read_alone(recording: Recording) -> Bool[Tensor, "batch tokens"]:
    """The token that the classifier reads, where it is one only."""
    assert recording.padding is not None
    try:
        pooled = recording.pooling > 0
    except (UnsupportedModelError, UnsupportedMethodError):  # no attention: nothing says what is read
        return torch.zeros_like(recording.padding, dtype=torch.bool)
    return pooled & (pooled.sum(1, keepdim=True) == 1)
