"""Unmodified models of every kind: fused equals explicit attention, a batch its samples; padding does nothing."""

from functools import cache
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, missing_forms, select

import lrptrain

# Four steps of integrated gradients do not converge on every model: here maps are compared at equal steps, and what a
# map that has not converged says is tested with the method.
pytestmark = pytest.mark.filterwarnings("ignore:integrated_gradients has not converged:lrptrain.RelevanceWarning")

METHODS = lrptrain.methods()
# What needs no maps of attention over the whole sequence.
WITHOUT_ATTENTION = (
    "attnlrp", "cp_lrp", "epsilon_lrp", "gamma_lrp", "input_x_gradient", "integrated_gradients", "kernel_shap",
    "leave_one_out", "lime", "lrp", "random", "smoothgrad",
)  # fmt: skip
# Smaller than the defaults where they take long.
OPTIONS: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 4},
    "kernel_shap": {"samples": 40},
    "lime": {"samples": 40},
    "smoothgrad": {"samples": 3},
}
PAIRS = [(name, method) for name in KINDS for method in METHODS]
REFUSED = [
    (name, method)
    for name, method in PAIRS
    if not KINDS[name].attention
    and method not in WITHOUT_ATTENTION
    # The last stage of a PVT attends to all of its tokens.
    and (name, method) != ("pvt", "gradcam")
]
SERVED = [pair for pair in PAIRS if pair not in REFUSED and pair[1] not in missing_forms(pair[0])]
TEXTS = [name for name, kind in KINDS.items() if kind.size is None]
# Methods that are computed alike, side by side: what one of them meets in a model, the others meet there, too.
FAMILIES = (
    ("raw_attention", "rollout", "attention_flow"),
    ("attention_norm", "atb_norm", "atb_ff_norm", "atb_ff_res_norm", "attn_res_ln_norm", "atb_ff_res_ln_norm"),
    ("attention_x_gradient", "generic_attention", "attention_gradcam", "gradcam"),
    ("lrp", "attnlrp", "cp_lrp", "epsilon_lrp", "gamma_lrp", "partial_lrp", "transformer_attribution"),
    ("input_x_gradient", "smoothgrad", "integrated_gradients"),
    ("kernel_shap", "lime", "leave_one_out", "random"),
)


def spread(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Every third method of a family with one model, and the others with the next two."""
    # A method of no family, such as a new one, is the first of its own.
    places = dict.fromkeys(METHODS, 0) | {method: i for family in FAMILIES for i, method in enumerate(family)}
    models = {name: number for number, name in enumerate(KINDS)}
    return [(name, method) for name, method in pairs if (models[name] + places[method]) % 3 == 0]


SPREAD = spread(SERVED)
PADDED = [pair for pair in SPREAD if pair[0] in TEXTS]


@cache
def built(name: str, fused: bool = True, dtype: torch.dtype = torch.float64) -> Any:
    return KINDS[name].build(fused).to(dtype)


@cache
def attributed(name: str, method: str, fused: bool = True, dtype: torch.dtype = torch.float64) -> lrptrain.Relevance:
    return explained(built(name, fused, dtype), KINDS[name].inputs(dtype=dtype), [0, 3, 4], method)


def explained(model: Any, inputs: Any, target: Any, method: str) -> lrptrain.Relevance:
    return lrptrain.attribute(model, inputs, target, method, **OPTIONS.get(method, {}))


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return relative_error(found, expected).max().item()


@pytest.mark.parametrize(("name", "method"), SERVED)
def test_maps_are_finite_and_have_one_score_per_patch_or_token(name, method):
    kind, found = KINDS[name], attributed(name, method)
    tokens = 10 if kind.grid is None else kind.grid[0] * kind.grid[1]
    assert found.grid == kind.grid
    assert found.scores.shape == (3, tokens)
    assert found.scores.isfinite().all()
    if method not in ("attention_gradcam", "gradcam", "partial_lrp"):  # these drop negative numbers, which may be all
        assert (found.scores != 0).any(1).all()
    assert found.target.tolist() == [0, 3, 4]
    assert not found.scores.requires_grad


def test_spread_pairs_leave_out_no_family_with_any_model_and_no_method():
    assert {method for family in FAMILIES for method in family} <= {*METHODS}
    for name in KINDS:
        served = {method for other, method in SERVED if other == name}
        met = {method for other, method in SPREAD if other == name}
        for family in FAMILIES:
            assert len(met & set(family)) >= len(served & set(family)) // 3, (name, family)
            assert met & set(family) or len(served & set(family)) < 3, (name, family)
    for method in METHODS:
        served = {name for name, other in SERVED if other == method}
        met = {name for name, other in SPREAD if other == method}
        assert len(met) >= len(served) // 4, method
        for names in (served & set(TEXTS), served - set(TEXTS)):
            assert met & names or not names, method


@pytest.mark.parametrize(("name", "method"), SPREAD)
def test_fused_attention_equals_explicit_attention(name, method):
    assert difference(attributed(name, method).scores, attributed(name, method, fused=False).scores) < 1e-9


@pytest.mark.parametrize("name", KINDS)
def test_logits_are_those_of_the_plain_model(name):
    model, inputs = built(name), KINDS[name].inputs()
    with torch.no_grad():
        output = model(inputs) if isinstance(inputs, torch.Tensor) else model(**inputs)
    assert difference(attributed(name, "input_x_gradient").logits, getattr(output, "logits", output)) < 1e-12


@pytest.mark.parametrize(("name", "method"), REFUSED)
def test_attention_that_does_not_see_the_whole_sequence_is_refused_by_methods_on_its_maps(name, method):
    refusals = (lrptrain.UnsupportedMethodError, lrptrain.UnsupportedModelError, lrptrain.UnsupportedOperationError)
    with pytest.raises(refusals, match=" lrp"):
        attributed(name, method)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.attention])
def test_float32(name, record_property):
    """LRP amplifies rounding, so that differences of maps are reported, not bounded tightly."""
    build = (name, "transformer_attribution")
    fused, explicit = attributed(*build, True, torch.float32), attributed(*build, False, torch.float32)
    change = difference(fused.scores, explicit.scores)
    rounding = difference(fused.scores, attributed(*build).scores)
    record_property("fused against explicit", change)
    record_property("float32 against float64", rounding)
    print(f"{name}: float32 map, fused against explicit {change:.1e}, against float64 {rounding:.1e}")
    assert difference(fused.logits, explicit.logits) < 1e-5
    assert fused.scores.dtype == torch.float32
    assert change < 0.1


@pytest.mark.parametrize(("name", "method"), SPREAD)
def test_a_batch_equals_its_samples(name, method):
    """One by itself, or the others the other way round, of each in every other model."""
    whole, inputs = attributed(name, method), KINDS[name].inputs()
    rows = [1] if list(KINDS).index(name) // 2 % 2 else [2, 0]
    found = explained(built(name), select(inputs, rows), whole.target[rows].tolist(), method)
    assert difference(whole.scores[rows], found.scores) < 1e-9
    assert difference(whole.logits[rows], found.logits) < 1e-12


@pytest.mark.parametrize(("name", "method"), PADDED)
def test_padding_has_no_relevance_and_changes_none(name, method):
    inputs, whole = KINDS[name].inputs(), attributed(name, method)
    for row, length in enumerate([10, 7, 4]):
        assert (whole.scores[row, length:] == 0).all()
    alone = {key: x[2:, :4] for key, x in inputs.items()}
    found = explained(built(name), alone, int(whole.target[2]), method)
    assert difference(whole.scores[2:, :4], found.scores) < 1e-9


@pytest.mark.parametrize("name", ["vit_mean", "bert"])
def test_as_many_samples_as_tokens(name):
    """Batch and sequence cannot be told apart by their size."""
    samples = 16 if name == "vit_mean" else 10
    inputs = KINDS[name].inputs(samples)
    whole = lrptrain.attribute(built(name), inputs, 1)
    last = lrptrain.attribute(built(name), select(inputs, slice(samples - 1, samples)), 1)
    assert difference(whole.scores[-1:], last.scores) < 1e-9
