"""However attention is written: what counts as a block, and that all spellings agree."""

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import RELEVANCE, Block, Small, patches, same
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

# torch.nn's attention


class Encoder(nn.Module):
    def __init__(self, norm_first: bool, need_weights: bool | None = None, batch_first: bool = True):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.batch_first, self.need_weights = batch_first, need_weights
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=batch_first, norm_first=norm_first)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, 4)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = tokens if self.batch_first else tokens.transpose(0, 1)
        if self.need_weights is None:
            tokens = self.layer(tokens)
        else:
            tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=self.need_weights)[0]
        return self.head(tokens.mean(1 if self.batch_first else 0))


@pytest.mark.parametrize("samples", [1, 3, 16])
def test_multihead_attention_with_and_without_weights(samples):
    plain = Encoder(True, need_weights=True)
    same(Encoder(True, need_weights=False), plain, patches(samples), (*RELEVANCE, "rollout"))
    same(Encoder(True, need_weights=False, batch_first=False), plain, patches(samples), (*RELEVANCE, "rollout"))


@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder_layer_takes_no_fast_path(norm_first):
    layer = Encoder(norm_first)
    same(layer, Encoder(norm_first).train(), patches())
    same(layer, Encoder(norm_first).requires_grad_(False), patches())
    whole = lrptrain.attribute(layer, patches(), 1)
    singles = [lrptrain.attribute(layer, patches()[i : i + 1], 1).scores for i in range(3)]
    assert relative_error(whole.scores, torch.cat(singles)).max() < 1e-9


# Which attention counts


class TwoHeads(Small):
    """A second attention block whose output nobody reads, and a softmax over queries."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        q, k, v = self.qkv(tokens).chunk(3, -1)
        attended = tokens + self.out(F.scaled_dot_product_attention(q, k, v))
        self.unused = F.scaled_dot_product_attention(attended, attended, attended) + attended
        return self.head(attended.mean(1))


def test_a_block_that_nobody_reads_does_not_count():
    same(TwoHeads(), Small(), patches(), (*RELEVANCE, "rollout", "raw_attention", "partial_lrp"))
    model = TwoHeads()
    lrptrain.attribute(model, patches())
    assert not hasattr(model, "unused")  # as before the call


def test_softmax_over_another_axis_is_no_attention():
    model = Small(after=Block(lambda x: (x @ x.mT).softmax(1) @ x))
    (block,) = (
        lrptrain.attribute(model, patches(), None, "transformer_attribution", keep_attention=True).attention or ()
    )
    assert block.shape == (3, 1, 16, 16)


def heads_in_front(x: Tensor) -> Tensor:
    heads = x.view(len(x), 16, 2, 4).permute(2, 0, 1, 3).reshape(-1, 16, 4)  # (heads * batch, tokens, width)
    attended = F.scaled_dot_product_attention(heads, heads, heads).view(2, len(x), 16, 4)
    return x + attended.permute(1, 2, 0, 3).reshape(len(x), 16, 8)


def heads_behind(x: Tensor) -> Tensor:
    heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
    return x + F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(len(x), 16, 8)


def by_einsum(x: Tensor) -> Tensor:
    heads = x.view(len(x), 16, 2, 4)
    attention = (torch.einsum("bihd,bjhd->bhij", heads, heads) / 2).softmax(-1)
    return x + torch.einsum("bjhd,bhij->bihd", heads, attention).reshape(len(x), 16, 8)


def cast_to_the_type_of_the_scores(x: Tensor) -> Tensor:
    heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
    scores = heads @ heads.mT / 2
    probabilities = scores.double().softmax(-1).type_as(scores)
    return x + (probabilities.to(scores) @ heads).transpose(1, 2).reshape(len(x), 16, 8)


@pytest.mark.parametrize("function", [heads_in_front, by_einsum, cast_to_the_type_of_the_scores])
@pytest.mark.parametrize("samples", [2, 16])
def test_ways_to_write_attention(function, samples):
    methods = (*RELEVANCE, "rollout", "raw_attention")
    same(Small(Block(function)), Small(Block(heads_behind)), patches(samples), methods)


def test_grouped_queries():
    def grouped(x: Tensor) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        found = F.scaled_dot_product_attention(heads, heads[:, :1], heads[:, :1], enable_gqa=True)
        return x + found.transpose(1, 2).reshape(len(x), 16, 8)

    def written_out(x: Tensor) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        keys = heads[:, :1].expand(-1, 2, -1, -1)
        return x + F.scaled_dot_product_attention(heads, keys, keys).transpose(1, 2).reshape(len(x), 16, 8)

    same(Small(Block(grouped)), Small(Block(written_out)), patches())


def masks() -> list[dict]:
    causal = torch.ones(16, 16, dtype=torch.bool).tril()
    minus = torch.zeros(16, 16, dtype=torch.float64).masked_fill(~causal, -torch.inf)
    return [
        {"is_causal": True},
        {"attn_mask": causal},
        {"attn_mask": minus},
        {"attn_mask": causal.expand(1, 1, 16, 16)},
    ]


@pytest.mark.parametrize("options", masks())
def test_masks(options):
    def attend(x: Tensor, options: dict) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        found = F.scaled_dot_product_attention(heads, heads, heads, **options)
        return x + found.transpose(1, 2).reshape(len(x), 16, 8)

    one, other = (Small(Block(lambda x, o=o: attend(x, o))) for o in (options, masks()[2]))
    same(one, other, patches())
    with torch.no_grad():
        assert relative_error(lrptrain.attribute(one, patches()).logits, one(patches())).max() < 1e-12


@pytest.mark.parametrize("mask", [torch.zeros(16, 16, dtype=torch.bool), torch.full((16, 16), -torch.inf).double()])
def test_queries_without_any_key_yield_zero_as_in_the_fused_kernels(mask):
    model = Small(Block(lambda x: x + F.scaled_dot_product_attention(x, x, x, attn_mask=mask)))
    found = lrptrain.attribute(model, patches(), 1)
    with torch.no_grad():
        assert relative_error(found.logits, model(patches())).max() < 1e-12
    assert found.scores.isfinite().all()


@pytest.mark.parametrize("sign", [-1, 1])
def test_mixed_heads_that_are_negative_on_average_have_no_raw_attention(sign):
    mixing = sign * torch.tensor([[1.0, 2.0], [0.5, -0.1]], dtype=torch.float64)

    def mixed(x: Tensor) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        probabilities = (heads @ heads.mT).softmax(-1).permute(0, 2, 3, 1) @ mixing
        return x + (probabilities.permute(0, 3, 1, 2) @ heads).transpose(1, 2).reshape(len(x), 16, 8)

    model = Small(after=Block(mixed))
    if sign > 0:
        assert (lrptrain.attribute(model, patches(), 1, "raw_attention").scores > 0).all()
        return
    with pytest.raises(lrptrain.UnsupportedMethodError, match=r"mixes its heads after the softmax.*input_x_gradient"):
        lrptrain.attribute(model, patches(), 1, "raw_attention")
