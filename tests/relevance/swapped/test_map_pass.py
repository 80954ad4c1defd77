"""Generic attention by kept attention and one gradient is that of the tape, or the tape serves."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.default import UNSUPPORTED
from lrptrain.relevance.fast import kernels
from lrptrain.relevance.fast.switch import plainly
from lrptrain.relevance.swapped import plans

METHOD = "generic_attention"
IDS = torch.randint(1, 200, (3, 9), generator=torch.Generator().manual_seed(1))


class Text(nn.Module):
    """Two blocks of attention over two heads, in one of several ways; the logits read the first token, or others."""

    def __init__(self, attention: str = "fused", pooling: str = "first") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.pooling = attention, pooling
        self.table = nn.Embedding(200, 32)
        self.blocks = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.head = nn.Linear(32, 5)
        self.double().eval()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, is_own: Tensor) -> Tensor:
        mask = is_own[:, None, None, :]
        if self.attention == "fused":
            return F.scaled_dot_product_attention(query, key, value)
        if self.attention == "masked":
            return F.scaled_dot_product_attention(query, key, value, mask.expand(-1, 1, query.shape[-2], -1))
        if self.attention == "summand":
            lowest = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -1e9)
            return F.scaled_dot_product_attention(query, key, value, attn_mask=lowest)
        if self.attention == "causal":
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3)
        if self.attention == "groups":
            return F.scaled_dot_product_attention(query, key[:, :1], value[:, :1], enable_gqa=True)
        if self.attention == "nothing to attend to":
            own = mask & is_own[:, None, :, None]
            return F.scaled_dot_product_attention(query, key, value, own)
        merged = [x.flatten(0, 1) for x in (query, key, value)]
        weights = (merged[0] @ merged[1].mT * 0.25).softmax(-1)
        if self.attention == "written into":
            weights.mul_(2.0)
        return (weights @ merged[2]).unflatten(0, query.shape[:2])

    def forward(self, input_ids: Tensor) -> Tensor:
        is_own = input_ids > 0
        x = self.table(input_ids)
        for number, (block, out) in enumerate(zip(self.blocks, self.out, strict=True)):
            query, key, value = block(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
            x = x + out(self.attend(query, key, value, is_own).transpose(1, 2).flatten(2))
            if self.pooling == "turned" and number == 0:
                x = x.roll(int(is_own.sum()) % 2, 1)
        if self.pooling == "last":
            return self.head(x)[torch.arange(len(x)), is_own.sum(1) - 1]
        if self.pooling == "two":
            return self.head(x[:, 0] + x[:, 1])
        if self.pooling == "largest":
            return self.head(x).amax(1)
        return self.head(x[:, 0])


def by_tape(model: nn.Module, ids: Tensor, target: int = 0) -> Tensor:
    with plainly():
        return lrptrain.attribute(model, {"input_ids": ids}, target, METHOD).scores


def is_planned(model: nn.Module) -> bool:
    return [state.plan is not None for state in plans._known[model].values()] == [True]


def padded(*lengths: int) -> Tensor:
    ids = torch.randint(1, 200, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(len(lengths)))
    return torch.stack(
        [row.where(torch.arange(max(lengths)) < size, 0) for row, size in zip(ids, lengths, strict=True)]
    )


FUSED = ["fused", "masked", "summand", "causal", "groups", "nothing to attend to", "merged heads"]


@pytest.mark.filterwarnings("ignore::lrptrain.RelevanceWarning")
@pytest.mark.parametrize("pooling", ["first", "last"])
@pytest.mark.parametrize("attention", FUSED)
def test_a_map_is_that_of_the_tape_at_every_size(attention: str, pooling: str):
    """The second lengths are of another batch, and end elsewhere in each sample."""
    model = Text(attention, pooling)
    for ids in (padded(9, 9, 9), padded(3, 7, 12, 5), padded(2, 2)):
        for target in (0, 3):
            found = lrptrain.attribute(model, {"input_ids": ids}, target, METHOD).scores
            torch.testing.assert_close(found, by_tape(model, ids, target), rtol=1e-9, atol=1e-15)
    assert is_planned(model)


@pytest.mark.filterwarnings("ignore::lrptrain.RelevanceWarning")
@pytest.mark.parametrize(
    ("attention", "pooling"), [("fused", "two"), ("fused", "largest"), ("fused", "turned"), ("written into", "first")]
)
def test_what_a_plan_cannot_know_is_left_to_the_tape(attention: str, pooling: str):
    model = Text(attention, pooling)
    for ids in (padded(9, 9, 9), padded(3, 7, 12, 5), padded(9, 8)):
        try:
            expected = by_tape(model, ids)
        except UNSUPPORTED as error:
            with pytest.raises(type(error)):
                lrptrain.attribute(model, {"input_ids": ids}, 0, METHOD)
            continue
        found = lrptrain.attribute(model, {"input_ids": ids}, 0, METHOD).scores
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)


def test_a_long_sequence_is_read_some_queries_at_a_time(monkeypatch: pytest.MonkeyPatch):
    model, ids = Text("masked"), padded(40, 23)
    whole = lrptrain.attribute(model, {"input_ids": ids}, 0, METHOD).scores
    assert is_planned(model)
    monkeypatch.setattr(kernels, "ENTRIES_AT_A_TIME", 7 * 2 * 2 * 40)
    found = lrptrain.attribute(model, {"input_ids": ids}, 0, METHOD).scores
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-15)


def test_another_option_or_several_methods_are_left_to_the_tape():
    model = Text()
    lrptrain.attribute(model, {"input_ids": IDS}, 0, METHOD, start_layer=1)
    lrptrain.attribute(model, {"input_ids": IDS}, 0, [METHOD, "rollout"])
    assert model not in plans._known
    lrptrain.attribute(model, {"input_ids": IDS}, 0, METHOD, start_layer=0)
    assert is_planned(model)


def test_methods_of_one_model_have_plans_of_their_own():
    model = Text()
    first = {name: lrptrain.attribute(model, {"input_ids": IDS}, 0, name) for name in plans.PLANNED}
    again = {name: lrptrain.attribute(model, {"input_ids": IDS}, 0, name) for name in plans.PLANNED}
    assert len(plans._known[model]) == len(plans.PLANNED)
    for name in plans.PLANNED:
        assert first[name].method == again[name].method == name
        assert torch.equal(first[name].scores, again[name].scores)
