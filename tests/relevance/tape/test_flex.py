"""`flex_attention` in eager mode: the map is that of the same attention written with `scaled_dot_product_attention`."""

import pytest
import torch
from small_models import Block, Small, patches, raises, same
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
METHODS = ("attnlrp", "transformer_attribution", "input_x_gradient", "integrated_gradients")
BIAS = torch.randn(3, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(16, 16, dtype=torch.bool).tril()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, 4)).transpose(1, 2)


def flex(groups: int = 2, **options) -> Block:
    def attend(x: Tensor) -> Tensor:
        q = heads(x)
        kv = q[:, :groups]
        return flex_attention(q, kv, kv * 2, enable_gqa=groups < 2, **options).transpose(1, 2).flatten(2)

    return Block(attend)


def fused(groups: int = 2, **options) -> Block:
    def attend(x: Tensor) -> Tensor:
        q = heads(x)
        kv = q[:, :groups]
        return (
            F.scaled_dot_product_attention(q, kv, kv * 2, enable_gqa=groups < 2, **options).transpose(1, 2).flatten(2)
        )

    return Block(attend)


def capped(x: Tensor) -> Tensor:
    q = heads(x)
    return (torch.softmax(2 * torch.tanh(q @ q.mT / 4), -1) @ (q * 2)).transpose(1, 2).flatten(2)


def block_mask():
    return create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")


CASES = {
    "plain": (lambda: flex(), fused()),
    "scaled": (lambda: flex(scale=0.3), fused(scale=0.3)),
    "groups": (lambda: flex(1), fused(1)),
    "causal": (lambda: flex(block_mask=block_mask()), fused(attn_mask=MASK)),
    "bias": (lambda: flex(score_mod=lambda s, b, h, q, k: s + BIAS[b, 0, q, k]), fused(attn_mask=BIAS)),
    "bias, by one index at a time": (
        lambda: flex(score_mod=lambda s, b, h, q, k: s + BIAS[b][0][q][k]),
        fused(attn_mask=BIAS),
    ),
    "capped": (lambda: flex(score_mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2)), Block(capped)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_attention(name):
    build, other = CASES[name]
    # The bias is of three samples: integrated gradients runs three rows at a time.
    methods = METHODS[:3] if "bias" in name else METHODS
    same(Small(build()), Small(other), patches(), methods)


def test_what_depends_on_the_input_in_the_score_mod_is_not_lost():
    def attend(x: Tensor) -> Tensor:
        q, own = heads(x), x.mean(-1)
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, k: s + own[b][k]).transpose(1, 2).flatten(2)

    raises(attend, r"runs inside of torch.vmap")
