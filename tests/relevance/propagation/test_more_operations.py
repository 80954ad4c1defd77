"""Operations beside those of a plain transformer: input times gradient where AttnLRP is that, or an equal spelling."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import Block, Small, patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

METHODS = ("attnlrp", "explicit", "gamma_lrp", "epsilon_lrp", "lrp", "chefer", "transformer_attribution")
OPTIONS = {"explicit": ("attnlrp", {"form": "explicit"}), "chefer": ("lrp", {"composite": "chefer"})}


def attributed(model: nn.Module, method: str) -> lrptrain.Relevance:
    name, options = OPTIONS.get(method, (method, {}))
    return lrptrain.attribute(model, patches(), 1, name, **options)


def grid(tokens: Tensor) -> Tensor:
    return tokens.mT.unflatten(2, (4, 4))


def tokens_of(x: Tensor) -> Tensor:
    return x.flatten(2).mT


INDEX = torch.arange(15, -1, -1)
ROWS = torch.arange(3)[:, None]
# Of [3, 16, 8], in reading order: the first two tokens of each sample; all tokens, twice.
PLACES = torch.arange(3 * 16 * 8).view(3, 16, 8)[:, :2]
TWICE = torch.arange(3 * 16 * 8).view(3, 16, 8).repeat(1, 2, 1)
FIRST, SECOND, THIRD = torch.randn(3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) / 4
WEIGHT = torch.randn(8, 8, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def added_in_place(t: Tensor) -> Tensor:
    result = torch.zeros_like(t)
    for rows in (INDEX[:9], INDEX[4:]):
        result.index_add_(1, rows, t[:, rows] * 2)
    return result


def written_over(t: Tensor) -> Tensor:
    y = t * 1
    y[:, 2:4] = t[:, 5:7] * 3
    y[:, :, :2] = t[:, :1, 2:4]  # the same for all tokens
    y[:, torch.tensor([9, 8])] = t[:, :2]
    return y


def written_into_zeros(t: Tensor) -> Tensor:
    y = torch.zeros_like(t)
    y[:, 1:] = t[:, 1:]
    y[..., 0] = t[..., 1]
    return y


# Linear operations: AttnLRP of them is input times gradient.
LINEAR: dict[str, Callable[[Tensor], Tensor]] = {
    "interpolate": lambda t: tokens_of(
        F.interpolate(F.interpolate(grid(t), size=6, mode="bilinear", align_corners=False), size=4)
    ),
    "conv_transpose2d": lambda t: tokens_of(F.conv_transpose2d(grid(t), WEIGHT, stride=2)[:, :, :4, :4]),
    "pixel_shuffle": lambda t: tokens_of(F.pixel_unshuffle(F.pixel_shuffle(grid(t), 2), 2)),
    "index_add": lambda t: t.index_add(1, INDEX, t * 2),
    "scatter_add": lambda t: t.scatter_add(1, INDEX[None, :, None].expand(t.shape), t * 2),
    "index_add in place": added_in_place,
    "cumsum": lambda t: t.cumsum(1) - t.cumsum(dim=-1),
    "topk": lambda t: torch.cat([t.topk(3).values, t.topk(3, largest=False)[0], t[..., :2]], -1),
    "sort": lambda t: t.sort(1, descending=True).values,
    "written over": written_over,
    "written into zeros": written_into_zeros,
    "scatter": lambda t: t.scatter(1, INDEX[:5, None].expand(len(t), 5, 8), t[:, 1:6] * 2),
    "index_copy": lambda t: t.index_copy(1, INDEX[:5], t[:, 3:8] * 2),
    "put": lambda t: t.put(PLACES, t[:, 3:5] * 2),
    "put, accumulated": lambda t: t.put(TWICE, torch.cat([t, t * 2], 1), accumulate=True),
    "index_put": lambda t: t.index_put((ROWS, INDEX[:5]), t[:, 3:8] * 2),
    "index_put, accumulated": lambda t: t.index_put((ROWS, INDEX[:5] // 2), t[:, 3:8] * 2, accumulate=True),
    "fold": lambda t: tokens_of(F.fold(F.unfold(grid(t), 2, padding=1), (4, 4), 2, padding=1)),
}


class Linear(nn.Module):
    """A patch embedding, an operation and a head."""

    def __init__(self, between: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embed, self.head, self.between = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4), between
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.embed(x).flatten(2).mT).mean(1))


def times_gradient(model: nn.Module) -> Tensor:
    x = patches().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
    return (x * gradient).sum(1).detach()


@pytest.mark.parametrize("form", ["attnlrp", "explicit"])
@pytest.mark.parametrize("name", LINEAR)
def test_attnlrp_of_linear_operations_is_input_times_gradient(name, form):
    model = Linear(LINEAR[name])
    found = attributed(model, form).input
    assert relative_error(found, times_gradient(model)).max() < 1e-9


# What the logits read of each token is not followed through a transposed convolution.
REFUSED = ("conv_transpose2d", "transformer_attribution")
RULED = [case for case in product(LINEAR, METHODS) if case != REFUSED]


@pytest.mark.parametrize(("name", "method"), RULED)
def test_linear_operations_have_rules_in_every_composite(name, method):
    scores = attributed(Small(after=LINEAR[name]), method).scores
    assert scores.isfinite().all()
    assert scores.abs().sum() > 0


def test_a_linear_operation_without_a_rule_is_refused():
    name, method = REFUSED
    with pytest.raises(lrptrain.UnsupportedOperationError, match=f"{name} .*has no propagation rule"):
        attributed(Small(after=LINEAR[name]), method)


def system(t: Tensor) -> tuple[Tensor, Tensor]:
    """With a diagonal near 1, so that rounding is not amplified."""
    return torch.eye(6, dtype=t.dtype) + 0.1 * t[:, :6] @ t[:, 6:12].mT, t[:, 10:]


def row_by_row(matrix: Tensor, right: Tensor, unit: bool) -> Tensor:
    """The rows of the solution of a lower triangular system, in textbook order."""
    rows: list[Tensor] = []
    for i in range(matrix.shape[-1]):
        row = right[:, i : i + 1]
        if rows:
            row = row - matrix[:, i : i + 1, :i] @ torch.cat(rows, 1)
        rows.append(row if unit else row / matrix[:, i : i + 1, i : i + 1])
    return torch.cat(rows, 1)


@pytest.mark.parametrize("method", ["attnlrp", "explicit", "gamma_lrp"])
@pytest.mark.parametrize("kind", ["lower", "unit", "upper", "from the right"])
def test_triangular_systems_are_solved_row_by_row(kind, method):
    """x_i = (b_i - sum_j a_ij x_j) / a_ii: products are halved, sums proportional, the divisor is held fixed."""

    def solved(t: Tensor) -> Tensor:
        matrix, right = system(t)
        if kind == "upper":  # the same system, from its last row on
            return torch.linalg.solve_triangular(matrix.flip(1, 2), right.flip(1), upper=True).flip(1)
        if kind == "from the right":
            return torch.linalg.solve_triangular(matrix.mT, right.mT, upper=True, left=False).mT
        return torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=kind == "unit")

    models = (Small(after=Block(solved)), Small(after=Block(lambda t: row_by_row(*system(t), unit=kind == "unit"))))
    with torch.no_grad():
        assert relative_error(*(model(patches()) for model in models)).max() < 1e-9
    assert relative_error(*(attributed(model, method).scores for model in models)).max() < 1e-9


@pytest.mark.parametrize("method", ["attnlrp", "explicit", "lrp"])
def test_what_is_written_twice_is_refused(method):
    """torch does not say which of the two stays."""

    def twice(t: Tensor) -> Tensor:
        y = t * 1
        y[:, torch.tensor([0, 0])] = t[:, 1:3]
        return y

    scattered = Block(lambda t: t.scatter(1, torch.zeros_like(t[:, :2], dtype=torch.long), t[:, 1:3]))
    again = torch.tensor([0, 0])
    copied = Block(lambda t: t.index_copy(1, again, t[:, 1:3]))
    put = Block(lambda t: t.put(again, t[0, 0, 2:4]))
    put_in_place = Block(lambda t: (t * 1).put_(again, t[0, 0, 2:4]))
    index_put = Block(lambda t: t.index_put((torch.arange(3)[:, None], again), t[:, 1:3]))
    for function in (Block(twice), scattered, copied, put, put_in_place, index_put):
        with pytest.raises(lrptrain.UnsupportedOperationError, match="writes an entry more than once"):
            attributed(Small(after=function), method)


@pytest.mark.parametrize("composite", ["chefer", "alpha_beta"])
def test_negative_weights_are_refused_by_rules_that_take_them_for_positive(composite):
    subtracted = Block(lambda t: t.index_add(1, INDEX[:3], t[:, :3], alpha=-2))
    bicubic = Block(lambda t: tokens_of(F.interpolate(F.interpolate(grid(t), size=6, mode="bicubic"), size=4)))
    for function in (subtracted, bicubic):
        model = Linear(function)
        with pytest.raises(lrptrain.UnsupportedOperationError, match="negative weights"):
            lrptrain.attribute(model, patches(), 1, "lrp", composite=composite)
        found = attributed(model, "attnlrp").input
        assert relative_error(found, times_gradient(model)).max() < 1e-9


def by_three(t: Tensor) -> Tensor:
    """Attention without a softmax, with a product of three activations."""
    return torch.einsum("bqd,bkd,bkv->bqv", t @ FIRST, t @ SECOND, t @ THIRD)


NO_RULE = {
    "einsum": by_three,
    "lerp": lambda t: torch.lerp(t, t.flip(1), 0.5),
    "cdist": lambda t: torch.cdist(t, t)[..., :8],
    "cosine_similarity": lambda t: t + F.cosine_similarity(t, t.flip(1), dim=-1)[..., None],
    "logaddexp": lambda t: torch.logaddexp(t, t.flip(1)),
    "addcdiv": lambda t: torch.addcdiv(t, t, torch.exp(t)),
}


@pytest.mark.parametrize("method", ["attnlrp", "gamma_lrp", "epsilon_lrp", "lrp"])
@pytest.mark.parametrize("name", NO_RULE)
def test_what_no_rule_is_for_is_refused_by_name(name, method):
    with pytest.raises(lrptrain.UnsupportedOperationError, match=f"{name} in module"):
        lrptrain.attribute(Small(after=Block(NO_RULE[name])), patches(), method=method)


@pytest.mark.parametrize("equation", ["bti->tb", "bti,i->bti", "btt,bti->bti"])
def test_other_einsums_are_refused(equation):
    others = [THIRD[0]] if equation == "bti,i->bti" else [torch.ones(3, 16, 8, dtype=torch.float64)]
    others = others if "," in equation else []
    square = equation.startswith("btt")

    def between(t: Tensor) -> Tensor:
        return t + torch.einsum(equation, t @ t.mT if square else t, *others).sum()

    with pytest.raises(lrptrain.UnsupportedOperationError, match="einsum in module"):
        lrptrain.attribute(Small(after=Block(between)), patches(), method="attnlrp")


# Two spellings of one function; relevance of a denominator is held fixed.
SPELLINGS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "glu": (
        lambda t: F.glu(torch.cat([t, 2 * t], -1)),
        lambda t: (u := torch.cat([t, 2 * t], -1))[..., :8] * torch.sigmoid(u[..., 8:]),
    ),
    "addcmul": (lambda t: torch.addcmul(t, t, t.flip(1), value=2.0), lambda t: t + t * t.flip(1) * 2.0),
    "reciprocal": (
        lambda t: t.flip(1) * torch.reciprocal(torch.exp(t).sum(-1, keepdim=True)),
        lambda t: t.flip(1) / torch.exp(t).sum(-1, keepdim=True),
    ),
    "rsqrt": (
        lambda t: t.flip(1) * torch.rsqrt(torch.exp(t).sum(-1, keepdim=True)),
        lambda t: t.flip(1) / torch.exp(t).sum(-1, keepdim=True).sqrt(),
    ),
    "a denominator is a constant": (
        lambda t: t.flip(1) / torch.exp(t),
        lambda t: t.flip(1) / torch.exp(t).detach(),
    ),
    "square": (torch.square, lambda t: t * t),
    "pow": (lambda t: t**2, torch.square),
    "min": (lambda t: t.amin(1, keepdim=True), lambda t: -(-t).amax(1, keepdim=True)),
}


# Transformer attribution weighs attention by true gradients, and those of a denominator are not held fixed.
UNEQUAL = (("a denominator is a constant", "transformer_attribution"),)


@pytest.mark.parametrize(("name", "method"), [case for case in product(SPELLINGS, METHODS) if case not in UNEQUAL])
def test_spellings_have_one_map(name, method):
    first, second = (attributed(Small(after=Block(function)), method).scores for function in SPELLINGS[name])
    assert relative_error(first, second).max() < 1e-8


@pytest.mark.parametrize("function", [torch.abs, torch.exp, torch.erf, torch.sin, torch.atan, lambda x: 2**x])
@pytest.mark.parametrize("form", ["attnlrp", "explicit"])
def test_functions_of_one_variable_pass_relevance(function, form):
    """Achtibat et al. 2024, eq. 9: all relevance passes, so that the slope is f(x) / x."""
    held = [attributed(Small(after=Block(f)), form).scores for f in (function, fixed_slope(function))]
    assert relative_error(*held).max() < 1e-9


def fixed_slope(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: x * (function(x) / x).detach()


@pytest.mark.parametrize("method", METHODS)
def test_vector_norms_conserve_relevance(method):
    """y = |x| grows as x does: R_i = x_i^2 / |x|^2 R."""
    norm = Small(after=Block(lambda t: t * 0 + torch.linalg.vector_norm(t, dim=-1, keepdim=True)))
    by_hand = Small(
        after=Block(
            lambda t: t * 0 + (t * (t / torch.linalg.vector_norm(t, dim=-1, keepdim=True)).detach()).sum(-1, True)
        )
    )
    first, second = (attributed(model, method).scores for model in (norm, by_hand))
    if method in ("attnlrp", "explicit", "gamma_lrp"):
        assert relative_error(first, second).max() < 1e-8
    assert first.isfinite().all()


class Alone(nn.Module):
    """A patch embedding without a bias, and logits that an operation makes of the tokens."""

    def __init__(self, logits: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embed, self.logits = nn.Conv2d(3, 4, 4, 4, bias=False), logits
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(tokens_of(self.embed(x)))


@pytest.mark.parametrize("method", ["attnlrp", "explicit"])
def test_a_soft_maximum_goes_to_the_largest(method):
    """Kauffmann et al. 2020: R_i = softmax(x)_i R of y = logsumexp(x)."""
    model = Alone(lambda t: t.logsumexp(1))
    with torch.no_grad():
        tokens = tokens_of(model.embed(patches()))
    expected = tokens.softmax(1)[..., 1] * tokens.logsumexp(1)[:, None, 1]
    assert relative_error(attributed(model, method).scores, expected).max() < 1e-9


@pytest.mark.parametrize("method", ["attnlrp", "explicit", "lrp"])
def test_attention_in_parts_that_are_merged_is_refused(method):
    """Its products would be halved twice, so that the map would be none of the attention as a whole."""

    def merged(t: Tensor) -> Tensor:
        scores = [t @ part.mT for part in t.split(8, 1)]
        parts = torch.stack([s.softmax(-1) @ part for s, part in zip(scores, t.split(8, 1), strict=True)])
        return (parts * torch.stack([s.logsumexp(-1, keepdim=True) for s in scores]).softmax(0)).sum(0)

    with pytest.raises(lrptrain.UnsupportedOperationError, match=r"logsumexp .*merges parts of one attention"):
        attributed(Small(after=Block(merged)), method)
