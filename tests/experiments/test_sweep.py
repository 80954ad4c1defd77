"""The sweep tells from shapes what the attention of a model is between."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.sweep.case import Subject
from experiments.sweep.checks import attention_kind, verdicts

SAMPLES, WIDTH = 2, 8


def attended(x: Tensor, keys: Tensor | None = None) -> Tensor:
    """Two heads of attention of tokens `[samples, tokens, width]` to themselves or to others."""
    keys = x if keys is None else keys
    query, key = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in (x, keys))
    return F.scaled_dot_product_attention(query, key, key).transpose(1, 2).flatten(2)


def pooled_on_grid(x: Tensor, size: int) -> Tensor:
    """Merge the tokens of a square grid by a convolution with a stride."""
    side = round(x.shape[1] ** 0.5)
    kernel = torch.ones(WIDTH, 1, size, size, dtype=x.dtype)
    return F.conv2d(x.mT.unflatten(2, (side, side)), kernel, stride=size, groups=WIDTH).flatten(2).mT


def in_windows(x: Tensor) -> Tensor:
    return attended(x.unflatten(1, (2, -1)).flatten(0, 1)).unflatten(0, (len(x), 2)).flatten(1, 2)


LATENTS = torch.ones(1, 5, WIDTH, dtype=torch.float64)
KINDS = {
    "global": lambda x: attended(attended(x)),
    "global, then a class token": lambda x: attended(attended(x)[:, :1], attended(x)),
    "global, then a decoder": lambda x: attended(attended(x), attended(attended(x))),
    "local: windows": in_windows,
    "local: keys are merged": lambda x: attended(pooled_on_grid(attended(x, pooled_on_grid(x, 2)), 2)),
    "local: keys are few": lambda x: attended(x, attended(x[:, ::4])),
    "local: few tokens read all": lambda x: attended(attended(x[:, ::2], x)),
    "local: stages": lambda x: pooled_on_grid(attended(x), 2),
    "local: lengths": lambda x: attended(attended(x)[:, ::2]),
    "local: latents": lambda x: attended(attended(LATENTS.expand(len(x), -1, -1), x)),
    "local: channels": lambda x: (x.mT.unflatten(1, (2, -1)) @ x.unflatten(2, (2, -1)).transpose(1, 2)).softmax(-1),
    "none: no square matrix": lambda x: attended(x, pooled_on_grid(x, 2)),
    "none": lambda x: x.tanh(),
}


class OfTokens(nn.Module):
    """A function of tokens, pooled."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, tokens: Tensor) -> Tensor:
        return KINDS[self.name](tokens.mT).flatten(1)[:, :2]


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_of_attention_is_told_from_shapes(name):
    tokens = torch.randn(SAMPLES, WIDTH, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert attention_kind(Subject(OfTokens(name), tokens)) == name.replace(",", ":").split(":")[0]


def test_a_model_without_logits_is_asked_for_its_attention_under_the_target():
    """CLIP returns similarities of images and texts: what is explained is made by the target."""
    from experiments.sweep.transformers_models import cases

    subject = next(case for case in cases() if case.name == "CLIPModel").build()
    assert dict(verdicts(subject, ("rollout", "raw_attention"))) == {"rollout": "ok", "raw_attention": "ok"}
