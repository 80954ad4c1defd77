"""What the model's own embedding says of the tokens of the sample: words that mean alike have vectors alike."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from lrptrain.findings import ExplainedSample
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.sharding.shards import is_sharded


def token_vectors(model: nn.Module, explained: Sequence[ExplainedSample]) -> Mapping[int, Float[np.ndarray, " width"]]:
    """Return the row of the embedding of every content token of some texts, by token id.

    Args:
        model: The model. One that does not name its embedding by `get_input_embeddings` has its first `nn.Embedding`
            that has a row for every token.
        explained: The samples.

    Returns:
        Nothing for images, without such an embedding, and where its rows lie in several processes.
    """
    content = [each.content_ids for each in explained if each.content_ids is not None]
    if not content or len(content) < len(explained):
        return {}
    ids = np.unique(np.concatenate(content))
    ids = ids[ids >= 0]
    table = _embedding(unwrap(model), int(ids.max(initial=-1)) + 1)
    if table is None or is_sharded(model):
        return {}
    with torch.no_grad():
        rows = table.weight[torch.from_numpy(ids).to(table.weight.device)].detach().double().cpu().numpy()
    return dict(zip(ids.tolist(), rows, strict=True))


def _embedding(model: nn.Module, tokens: int) -> nn.Embedding | None:
    """Return the embedding of the tokens; None where no module is surely that."""
    try:
        named = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        named = None
    every = [named, *(module for module in model.modules() if isinstance(module, nn.Embedding))]
    return next((each for each in every if isinstance(each, nn.Embedding) and each.num_embeddings >= tokens), None)
