"""A small model around a function, and checks of two models against each other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

RELEVANCE = ("transformer_attribution", "lrp", "generic_attention", "input_x_gradient")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def patches(samples: int = 3) -> Tensor:
    return random(samples, 3, 16, 16, seed=1)


class Small(nn.Module):
    """One attention block on 16 patches; `between` acts on the tokens before it, `after` on those behind it."""

    def __init__(self, between: Callable | None = None, after: Callable | None = None):
        super().__init__()
        self.embed, self.qkv = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)
        self.out, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        self.position = nn.Parameter(torch.zeros(16, 8))
        self.between, self.after = between or nn.Identity(), after or nn.Identity()
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.between(self.embed(x).flatten(2).transpose(1, 2) + self.position)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        tokens = tokens + self.out(F.scaled_dot_product_attention(q, k, v))
        return self.head(self.after(tokens).mean(1))


class Block(nn.Module):
    """A function as a module, so that a message can name it."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def same(one: nn.Module, other: nn.Module, inputs: Any, methods: tuple[str, ...] = RELEVANCE) -> None:
    for method in methods:
        first, second = (lrptrain.attribute(model, inputs, 1, method) for model in (one, other))
        assert relative_error(first.scores, second.scores).max() < 1e-9, method
        assert relative_error(first.logits, second.logits).max() < 1e-12


def raises(function: Callable, match: str) -> None:
    with pytest.raises(lrptrain.UnsupportedOperationError, match=match):
        lrptrain.attribute(Small(Block(function)), patches(), method="lrp")


def tiny_vit(**options: Any) -> nn.Module:
    """A ViT of timm for images of 16 x 16 pixels, the same in every call."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return VisionTransformer(**{**sizes, "num_classes": 3, **options})
