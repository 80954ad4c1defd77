"""Fused attention that stays fused: the same maps as from attention that is written out, and no matrix kept."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, select
from small_models import Small, patches, tiny_vit
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.fast import kernels
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.nodes import Node, Value

# A kernel's backward pass, some queries at a time through rules, and a row times the maps.
METHODS = ("attnlrp", "gamma_lrp", "cp_lrp", "lrp", "rollout", "generic_attention", "transformer_attribution")
# Class token; padding; a decoder with fewer heads of keys than of queries; windows of tokens.
MODELS = ("vit", "bert", "llama", "timm_swin")


@pytest.fixture
def fused(monkeypatch):
    """Every call of fused attention stays fused, and is read a few queries at a time."""
    monkeypatch.setattr(kernels, "LARGEST_WRITTEN_OUT", 0)
    monkeypatch.setattr(kernels, "ENTRIES_AT_A_TIME", 200)


def recorded(model: nn.Module, inputs: Any, *, written_out: bool = False) -> Recording:
    """A recording without a graph of the weights; of attention that is written out, if it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        if written_out:
            patch.setattr(kernels, "LARGEST_WRITTEN_OUT", math.inf)
        return lrptrain.record(model, inputs, differentiable=False)


def fused_calls(recording: Recording) -> int:
    kept = recording.tape.kernels
    return 0 if kept is None else len(kept.attentions)


def check_same(model: nn.Module, inputs: Any, methods: tuple[str, ...], calls: int, **options: Any) -> None:
    """Maps of fused attention are those of attention that is written out."""
    one = recorded(model, inputs)
    other = recorded(model, inputs, written_out=True)
    assert (fused_calls(one), fused_calls(other)) == (calls, 0)
    for method in methods:
        first = one.attribute(1, method, **options)
        second = other.attribute(1, method, **options)
        assert relative_error(first.scores, second.scores).max() < 1e-9, method
        if first.input is not None and second.input is not None:
            assert relative_error(first.input, second.input).max() < 1e-9, method


@pytest.mark.parametrize("name", MODELS)
def test_maps_are_those_of_attention_that_is_written_out(fused, name):
    kind = KINDS[name]
    maps = kind.attention
    methods = METHODS if maps else ("attnlrp", "lrp", "input_x_gradient")
    # The windows of Swin that are shifted have a bias besides their mask: written out.
    model = kind.build(True)
    inputs = kind.inputs(2)
    calls = fused_calls(recorded(model, inputs))
    assert calls == 2 if maps else calls == 0
    check_same(model, inputs, methods, calls)


def test_every_sample_is_explained_as_if_alone(fused):
    kind = KINDS["bert"]
    model = kind.build(True)
    inputs = kind.inputs(3)
    for method in ("attnlrp", "generic_attention", "transformer_attribution"):
        whole = lrptrain.attribute(model, inputs, 1, method).scores
        singles = [lrptrain.attribute(model, select(inputs, slice(i, i + 1)), 1, method).scores for i in range(3)]
        assert relative_error(whole, torch.cat(singles)).max() < 1e-9, method


def test_relevance_of_one_attention_is_the_textbooks(fused):
    """AttnLRP in its explicit form, step by step, without a mask: R of queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, arrives = (torch.randn(1, 2, 5, 3, dtype=torch.float64, generator=generator) for _ in range(4))
    scores = query @ key.mT / 3**0.5
    p = scores.softmax(-1)
    output = p @ value
    share = arrives / (2 * output)  # the uniform rule: half to either factor, by its part of each product
    of_p = p * (share @ value.mT)
    of_value = value * (p.mT @ share)
    of_scores = scores * (of_p - p * of_p.sum(-1, keepdim=True))  # proposition 3.1
    share = of_scores / (2 * scores)
    of_query = query * (share @ key) / 3**0.5
    of_key = key * (share.mT @ query) / 3**0.5

    leaves = tuple(x.clone().requires_grad_() for x in (query, key, value))
    call = kernels.Kernels().call(leaves[0], leaves[1], leaves[2])
    assert call is not None
    gradients = torch.autograd.grad(call.run(*leaves), leaves, arrives / output)
    for x, gradient, part, relevance in zip(
        (query, key, value), gradients, (0.25, 0.25, 0.5), (of_query, of_key, of_value), strict=True
    ):
        torch.testing.assert_close(part * x * gradient, relevance, rtol=1e-9, atol=1e-12)


def test_relevance_is_conserved(fused):
    """Without biases, what arrives at the input is the logit."""

    class WithoutBiases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(6, 18, bias=False)
            self.head = nn.Linear(6, 3, bias=False)

        def forward(self, inputs_embeds: Tensor) -> Tensor:
            query, key, value = self.qkv(inputs_embeds).unflatten(-1, (3, 2, 3)).transpose(1, 3).unbind(2)
            attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            logits: Tensor = self.head((inputs_embeds + attended).mean(1))
            return logits

    torch.manual_seed(0)
    model = WithoutBiases().double().eval()
    recording = recorded(model, {"inputs_embeds": torch.randn(2, 7, 6, dtype=torch.float64)})
    assert fused_calls(recording) == 1
    methods: tuple[tuple[str, dict[str, Any]], ...] = (("cp_lrp", {}), ("epsilon_lrp", {"epsilon": 0.0}))
    for method, options in methods:
        relevance = recording.attribute(1, method, **options)
        torch.testing.assert_close(relevance.scores.sum(1), relevance.logits[:, 1], rtol=1e-9, atol=1e-12)


def test_no_matrix_is_kept(fused):
    recording = recorded(tiny_vit().eval(), torch.randn(1, 3, 16, 16))
    assert recording.tape.kernels is not None
    for method in ("attnlrp", "generic_attention", "transformer_attribution"):
        recording.attribute(1, method)
    held = [
        value for attention in recording.tape.kernels.attentions for value in attention.inside if value.held is not None
    ]
    assert not held


def test_maps_can_be_asked_for_as_a_whole(fused):
    model = tiny_vit().eval().double()
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    whole = recorded(model, images).attribute(1, "transformer_attribution", keep_attention=True).attention
    expected = recorded(model, images, written_out=True).attribute(1, "transformer_attribution", keep_attention=True)
    assert whole is not None
    assert expected.attention is not None
    for one, other in zip(whole, expected.attention, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def _scores_as_they_are(propagator: Propagator, node: Node, relevance: list[Any]) -> list[tuple[Value, Tensor]]:
    return [(node.inputs[0], relevance[0])]


def _by_largest(propagator: Propagator, node: Node, relevance: list[Any]) -> list[tuple[Value, Tensor]]:
    """What it makes of a part of the map is not a part of what it makes of the map."""
    return [(node.inputs[0], relevance[0] / relevance[0].abs().max())]


@pytest.mark.parametrize("softmax", [_scores_as_they_are, _by_largest])
def test_a_rule_of_the_users_is_given_the_operations(fused, softmax):
    model = tiny_vit().eval().double()
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    rule = {"softmax": softmax}
    check_same(model, images, ("attnlrp", "transformer_attribution"), 2, composite=rule)
    plain = recorded(model, images).attribute(1, "attnlrp").scores
    assert not torch.allclose(plain, recorded(model, images).attribute(1, "attnlrp", composite=rule).scores)


def test_checkpointed_blocks_stay_fused(fused):
    model = tiny_vit().eval().double()
    model.set_grad_checkpointing()
    check_same(model.train(), torch.randn(2, 3, 16, 16, dtype=torch.float64), ("attnlrp", "generic_attention"), 2)


# -- What is written out ----------------------------------------------------------------------------------------------


class Attending(nn.Module):
    """One attention, called in a way of its own."""

    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.small = Small()
        self.attend = attend
        self.learned = nn.Parameter(torch.randn(1, 16, 8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.small.embed(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.small.head((tokens + self.attend(self, *self.small.qkv(tokens).chunk(3, -1))).mean(1))
        return logits


def _overwriting(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value).mul_(0.5)


def _biased(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    distance = (torch.arange(16)[:, None] - torch.arange(16)).abs().double()
    return F.scaled_dot_product_attention(query, key, value, -0.1 * distance)


def _all_blocked(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, torch.ones(16, 16, dtype=torch.bool).tril(-1))


def _of_input(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, query.detach().mean(-1, keepdim=True).mT * 0)


def _learned(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(model.learned.expand_as(query), key, value)  # type: ignore[operator]


@pytest.mark.parametrize("attend", [_overwriting, _biased, _all_blocked, _of_input, _learned])
def test_written_out_where_a_kernel_would_not_do(fused, attend):
    check_same(Attending(attend), patches(2), ("attnlrp", "input_x_gradient"), 0)


def _same_for_all(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, query, query, scale=0.3)


def _of_order(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _of_expanded_mask(model: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    lets_pass = torch.arange(16) < torch.tensor([16, 11])[:, None]
    mask = torch.zeros(2, 1, 16, dtype=torch.float64).masked_fill(~lets_pass[:, None], -math.inf)
    return F.scaled_dot_product_attention(query, key, value, mask.expand(2, 16, 16))


@pytest.mark.parametrize("attend", [_same_for_all, _of_order, _of_expanded_mask])
def test_ways_to_call_a_kernel(fused, attend):
    methods = ("attnlrp", "epsilon_lrp", "lrp", "rollout", "generic_attention", "transformer_attribution")
    check_same(Attending(attend), patches(2), methods, 1)


def test_half_precision_runs_the_kernel_again(fused):
    """AttnLRP computes in float32 where the model is in bfloat16; its map is as near to float32's as written out."""
    model = tiny_vit().eval().bfloat16()
    images = torch.randn(2, 3, 16, 16).bfloat16()
    one = recorded(model, images).attribute(1, "attnlrp").scores
    other = recorded(model, images, written_out=True).attribute(1, "attnlrp").scores
    # Probabilities are rounded to 8 bits in one of the two.
    assert relative_error(one, other).max() < 0.1
