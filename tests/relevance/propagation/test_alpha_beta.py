"""`lrp` is the alpha-beta rule of Bach et al. 2015 (eq. 60): against the formula, and its relevance is conserved."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from small_models import Small, patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain import rules
from lrptrain.relevance.fast.zplus import zplus
from lrptrain.relevance.propagation import rules as formulas

LAYOUT = lrptrain.TokenLayout(9, tuple(range(9)), (3, 3))


def images(samples: int = 3) -> Tensor:
    return torch.randn(samples, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Perceptron(nn.Module):
    """Three dense layers on signed pixels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(27, 12), nn.Linear(12, 9), nn.Linear(9, 4)])
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.gelu(layer(x))
        return self.layers[-1](x)


def of_a_layer(x: Tensor, layer: nn.Linear, relevance: Tensor, alpha: float, beta: float, bias: bool) -> Tensor:
    """R_i = sum_o (alpha z_io^+ / z_o^+ - beta z_io^- / z_o^-) R_o, with the bias inside of z_o^+ and z_o^-."""
    parts = x[:, None] * layer.weight  # [batch, out, in]
    constant = layer.bias if bias else torch.zeros_like(layer.bias)
    up, down = parts.clamp(min=0), parts.clamp(max=0)
    shares = alpha * up / (up.sum(-1) + constant.clamp(min=0))[..., None]
    if beta:
        shares = shares - beta * down / (down.sum(-1) + constant.clamp(max=0))[..., None]
    return (shares * relevance[..., None]).sum(1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, 1.0), (1.5, 0.5)])
def test_of_a_perceptron_on_signed_inputs(alpha, beta, bias):
    model, x = Perceptron(), images()
    found = lrptrain.attribute(model, x, 1, "lrp", layout=LAYOUT, alpha=alpha, beta=beta, bias=bias)
    inputs = [x.flatten(1)]
    for layer in model.layers[:-1]:
        inputs.append(F.gelu(layer(inputs[-1])))
    relevance = F.one_hot(torch.ones(3, dtype=torch.long), 4).double()
    for layer, before in zip(reversed(model.layers), reversed(inputs), strict=True):
        relevance = of_a_layer(before, layer, relevance, alpha, beta, bias)  # type: ignore[arg-type]
    assert found.input is not None
    assert relative_error(found.input, relevance.view_as(x).sum(1)).max() < 1e-9
    if not bias and not beta:
        torch.testing.assert_close(found.input.flatten(1).sum(1), torch.ones(3, dtype=torch.float64))


def test_with_a_graph_it_is_the_same_map():
    maps = [
        lrptrain.attribute(Perceptron(), images(), 1, "lrp", layout=LAYOUT, create_graph=graph).scores
        for graph in (True, False)
    ]
    assert relative_error(*maps).max() < 1e-9


@pytest.mark.parametrize("name", KINDS)
def test_relevance_of_one_stays_between_nothing_and_one(name):
    """What is missing went to biases and position embeddings; without biases in layers, all of it arrives in texts."""
    recording = lrptrain.record(KINDS[name].build(True), KINDS[name].inputs())
    for bias in (True, False):
        maps = recording.attribute([0, 3, 4], "lrp", bias=bias)
        assert maps.input is not None
        total = maps.input.flatten(1).sum(1)
        assert (total > 0).all()
        assert (total < 1 + 1e-9).all()
    assert recording.is_image or (total > 0.99).all()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, 1.0)])
def test_products_share_relevance_among_their_terms(alpha, beta):
    generator = torch.Generator().manual_seed(0)
    a, b, relevance = (torch.randn(*shape, generator=generator).double() for shape in ((3, 4), (4, 2), (3, 2)))
    a[0] = -a[0].abs()  # with b > 0 in the first column, all terms of the first entry are negative
    b[:, 0] = b[:, 0].abs()
    product: Any = (torch.matmul, lambda s, y: s @ y.mT, lambda s, x: x.mT @ s)
    found = formulas.alpha_beta_of_product(relevance, a, b, alpha, beta, product)
    terms = a[:, :, None] * b  # [rows, inner, columns]
    up, down = terms.clamp(min=0).sum(1, True), terms.clamp(max=0).sum(1, True)
    of_up, of_down = torch.where(down == 0, 1.0, alpha), torch.where(up == 0, 1.0, -beta)
    shares = of_up * (terms.clamp(min=0) / up).nan_to_num() + of_down * (terms.clamp(max=0) / down).nan_to_num()
    shares = shares * relevance[:, None] / 2
    torch.testing.assert_close(found, (shares.sum(2), shares.sum(0)))
    torch.testing.assert_close(found[0].sum() + found[1].sum(), relevance.sum())


def test_sums_are_shared_by_absolute_values():
    """Operands that cancel blow nothing up: in proportion, 1 - 0.999 would give 1000 and -999."""
    ones = torch.ones(1, dtype=torch.float64)
    first, second = formulas.by_size(ones, (ones, -0.25 * ones))
    assert (first.item(), second.item()) == (0.8, 0.2)
    maps = [lrptrain.attribute(model, patches(), 1, "lrp", bias=False).scores for model in (Small(), Small(after=less))]
    assert relative_error(*maps).max() < 1e-9


def less(tokens: Tensor) -> Tensor:
    return tokens - 0.999 * tokens


def box(x: Tensor, weight: Tensor, relevance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The z^B rule of a patch convolution [channels, height, width], by its unfolded patches; summed over channels."""

    def unfolded(t: Tensor) -> Tensor:
        return F.unfold(t.expand_as(x), 4, stride=4).mT[:, :, None]  # [batch, patches, 1, 48]

    rows = weight.flatten(1)
    parts = unfolded(x) * rows - unfolded(low) * rows.clamp(min=0) - unfolded(high) * rows.clamp(max=0)
    shares = parts / parts.sum(-1, keepdim=True) * relevance[..., None]
    return F.fold(shares.sum(2).mT, (16, 16), 4, stride=4).sum(1)


class Patches(nn.Module):
    """Patches cut by a convolution, or by reshapes and a linear layer; pixels may be scaled before."""

    def __init__(self, linear: bool = False, scale: float = 1.0):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.linear, self.scale = linear, scale
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - 0.25) * self.scale
        if not self.linear:
            return self.head(self.embed(x).flatten(2).mean(2))
        cut = x.reshape(len(x), 3, 4, 4, 4, 4).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return self.head(F.linear(cut, self.embed.weight.flatten(1), self.embed.bias).mean(1))


def first_relevance(model: Patches, x: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance of the tokens, [batch, 16, 8], by the formula: z+ in the head, absolute values in the mean."""
    seen = (x - 0.25) * model.scale
    tokens = model.embed(seen).flatten(2).mT
    of_pooled = of_a_layer(tokens.mean(1), model.head, F.one_hot(torch.ones(3).long(), 4).double(), 1.0, 0.0, True)
    return seen, of_pooled[:, None] * tokens.abs() / tokens.abs().sum(1, keepdim=True)


LOW, HIGH = torch.tensor([-4.0, -5.0, -6.0]).double(), torch.tensor([4.0, 5.0, 3.0]).double()


@pytest.mark.parametrize("bounds", ["own", "given", "number"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_pixels_take_the_z_box_rule_with_bounds_per_channel(linear, scale, bounds):
    model, x = Patches(linear, scale), patches()
    given: dict[str, dict[str, Any]] = {
        "own": {},
        "given": {"low": LOW, "high": HIGH},
        "number": {"low": -7, "high": 8},
    }
    layout = lrptrain.TokenLayout(16, tuple(range(16)), (4, 4))
    found = lrptrain.attribute(model, x, 1, "lrp", layout=layout, **given[bounds]).input
    low = {"own": x.amin((2, 3), True), "given": LOW.view(1, 3, 1, 1), "number": torch.full((1, 3, 1, 1), -7.0)}[bounds]
    high = {"own": x.amax((2, 3), True), "given": HIGH.view(1, 3, 1, 1), "number": torch.full((1, 3, 1, 1), 8.0)}[
        bounds
    ]
    low, high = ((end.double() - 0.25) * scale for end in (low, high))
    seen, relevance = first_relevance(model, x)
    expected = box(seen, model.embed.weight, relevance, torch.minimum(low, high), torch.maximum(low, high))
    assert relative_error(found, expected).max() < 1e-9


def test_the_rule_of_the_patch_convolution_can_be_chosen():
    model, x = Patches(), patches()
    found = lrptrain.attribute(model, x, 1, "lrp", patch_rule="flat").input
    _, relevance = first_relevance(model, x)
    expected = F.interpolate(relevance.sum(2).view(3, 1, 4, 4) / 16, scale_factor=4)[:, 0]
    assert relative_error(found, expected).max() < 1e-9
    plain = lrptrain.attribute(model, x, 1, "lrp", patch_rule=None).scores
    composite = {"conv2d": rules.zplus(bias=True)}
    assert relative_error(plain, lrptrain.attribute(model, x, 1, "lrp", composite=composite).scores).max() < 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 2.0}, "alpha - beta must be 1"),
        ({"alpha": float("nan")}, "alpha - beta must be 1"),
        ({"patch_rule": "z_box"}, "did you mean zbox"),
        ({"patch_rule": "flat", "low": 0.0}, "low and high are bounds for patch_rule='zbox'"),
        ({"low": [0.0, 1.0]}, "2 bounds were given for an input of 3 channels"),
        ({"composite": "chefer", "alpha": 2.0, "beta": 1.0}, "are options of 'alpha_beta', not of 'chefer'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.attribute(Patches(), patches(), 1, "lrp", **options)


# Positive contributions that are 10^12 times smaller than the negative ones, of which 2 and 1 parts come from the first
# two entries.
SMALL = torch.tensor([[2e-12, 1e-12, 0.7, 0.3, 0.9]], dtype=torch.float64)
AGAINST = torch.tensor([[1.0, 1.0, -1.0, -0.9, -1.1]], dtype=torch.float64)


def plain(x: Tensor, weight: Tensor) -> Tensor:
    return formulas.zplus(torch.ones(1, 1).double(), x, weight, F.linear, torch.matmul)


def in_place(x: Tensor, weight: Tensor) -> Tensor:
    return zplus(torch.ones(1, 1).double(), x, weight, F.linear(x, weight), None)


def by_sign(x: Tensor, weight: Tensor) -> Tensor:
    return formulas.alpha_beta(torch.ones(1, 1).double(), x, weight, 1.0, 0.0, F.linear, torch.matmul)


def of_product(x: Tensor, weight: Tensor) -> Tensor:
    product = (torch.matmul, lambda s, y: s @ y.mT, lambda s, y: y.mT @ s)
    first, second = formulas.alpha_beta_of_product(torch.ones(1, 1).double(), x, weight.mT, 1.0, 0.0, product)
    torch.testing.assert_close(first, second.mT, rtol=1e-14, atol=0.0)
    return 2 * first


@pytest.mark.parametrize("rule", [plain, in_place, by_sign, of_product])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_small_contributions_for_are_told_from_large_ones_against(rule, sign):
    """Their sum is not the rest of a difference, of which no digit would be right."""
    found = rule(sign * SMALL, sign * AGAINST)
    torch.testing.assert_close(
        found, torch.tensor([[2 / 3, 1 / 3, 0.0, 0.0, 0.0]], dtype=torch.float64), rtol=1e-14, atol=0.0
    )


def test_a_masked_key_takes_no_relevance_where_all_others_speak_against():
    """Its probability, exp(-100), is lost in the sum that the model computes."""
    attention = torch.tensor([[0.6, 0.4, 3.7e-44]], dtype=torch.float64)
    values = torch.tensor([[-1.0], [-2.0], [1.0]], dtype=torch.float64)
    product = (torch.matmul, lambda s, y: s @ y.mT, lambda s, y: y.mT @ s)
    one = torch.ones(1, 1, dtype=torch.float64)
    _, of_values = formulas.alpha_beta_of_product(one, attention, values, 1.0, 0.0, product)
    # Where no term speaks for, those against take all: in proportion to 0.6 and 0.8.
    expected = torch.tensor([[0.6], [0.8], [0.0]], dtype=torch.float64) / 1.4 / 2
    torch.testing.assert_close(of_values, expected, rtol=1e-14, atol=0.0)
