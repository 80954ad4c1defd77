"""Do methods agree with one another? If they do not, they cannot all be right."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.metrics import rank_correlation


def agreement(
    maps: Mapping[str, Float[Tensor, "batch tokens"]], usable: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "methods methods batch"]:
    """Spearman's rank correlation between the maps of all pairs of methods, per sample.

    Maps are compared as they are: signed ones with their sign.

    Args:
        maps: Scores by the name of the method, on the same samples.
        usable: Tokens that take part: not padding.

    Returns:
        In [-1, 1], 1 on the diagonal; nan where a map is constant.
    """
    scores = torch.stack([values.detach().float() for values in maps.values()])
    methods, samples, tokens = scores.shape
    pairs = (methods, methods, samples, tokens)
    first, second = (scores[one].expand(pairs).reshape(-1, tokens) for one in ((slice(None), None), (None,)))
    return rank_correlation(first, second, usable.expand(pairs).reshape(-1, tokens)).view(pairs[:3])
