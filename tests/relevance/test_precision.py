"""Half precision: of the caller's autocast, of a training step, and of the weights themselves."""

import copy
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from small_models import tiny_vit
from torch import Tensor, nn

import lrptrain
from lrptrain.relevance.model.precision import model_in_float32, without_autocast
from lrptrain.relevance.passes.interception import intercepted
from lrptrain.relevance.registry import differentiable, get_method

HALF = [torch.bfloat16, torch.float16]
# These two need captum, and are served as leave_one_out is; random needs no model.
METHODS = [name for name in lrptrain.methods() if name not in ("lime", "kernel_shap", "random")]
ABSENT = {"vit": {"attn_res_ln_norm", "atb_ff_res_ln_norm"}, "bert": {"atb_norm"}}
SENSITIVE = [name for name in METHODS if get_method(name, {}).full_precision]
CASES = [(kind, name) for kind in ABSENT for name in METHODS if name not in ABSENT[kind]]


def single(kind: str) -> tuple[nn.Module, Any]:
    """A model and its inputs in float32."""
    return KINDS[kind].build(True).float(), KINDS[kind].inputs(dtype=torch.float32)


def options_of(name: str) -> dict[str, Any]:
    """Little work, for methods that run the model again."""
    return {"integrated_gradients": {"steps": 2}, "smoothgrad": {"samples": 2}}.get(name, {})


def images(samples: int = 4) -> Tensor:
    return torch.randn(samples, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_methods_that_are_sensitive_are_those_with_quotients_and_differences():
    assert {"transformer_attribution", "lrp", "epsilon_lrp", "partial_lrp", "leave_one_out"} <= set(SENSITIVE)
    assert not {"attnlrp", "gamma_lrp", "generic_attention", "rollout", "input_x_gradient"} & set(SENSITIVE)


@pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")  # of two steps
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_autocast_changes_no_bit_of_any_map(kind, name):
    model, inputs = single(kind)
    exact = lrptrain.attribute(model, inputs, 1, name, **options_of(name))
    with torch.autocast("cpu", torch.bfloat16):
        under = lrptrain.attribute(model, inputs, 1, name, **options_of(name))
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(under.scores, exact.scores)
    assert torch.equal(under.logits, exact.logits)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["transformer_attribution", "generic_attention", "leave_one_out"])
def test_recordings_are_in_float32_under_autocast(name, dtype):
    model, inputs = single("vit")
    exact = lrptrain.record(model, inputs).attribute(1, name)
    with torch.autocast("cpu", dtype):
        recording = lrptrain.record(model, inputs.to(dtype).float())
        rounded = lrptrain.record(model, inputs.to(dtype))
    assert recording.output.tensor.dtype == torch.float32
    # An image in half precision is what it is: its numbers, in float32.
    assert torch.equal(rounded.attribute(1, name).scores, recording.attribute(1, name).scores)
    with torch.autocast("cpu", dtype):
        assert torch.equal(lrptrain.record(model, inputs).attribute(1, name).scores, exact.scores)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", SENSITIVE)
@pytest.mark.parametrize("recorded", [False, True])
def test_sensitive_methods_explain_half_weights_in_float32(name, dtype, recorded):
    model = tiny_vit().eval().to(dtype)
    hook = model.blocks[0].register_forward_hook(lambda *_: None)
    before = dict(model.named_parameters())
    exact = lrptrain.attribute(copy.deepcopy(model).float(), images().to(dtype).float(), 1, name)
    given = images().to(dtype)
    low = lrptrain.record(model, given).attribute(1, name) if recorded else lrptrain.attribute(model, given, 1, name)
    assert torch.equal(low.scores, exact.scores)
    assert low.logits.dtype == torch.float32
    assert given.dtype == dtype
    assert all(parameter is before[key] for key, parameter in model.named_parameters())
    assert all(parameter.dtype == dtype and parameter.grad is None for parameter in model.parameters())
    hook.remove()
    assert not model.blocks[0]._forward_hooks


@pytest.mark.parametrize("kind", ABSENT)
def test_other_methods_agree_with_float32_on_half_weights(kind):
    model, inputs = single(kind)
    low = copy.deepcopy(model).bfloat16()
    exact = copy.deepcopy(low).float()
    given = inputs.bfloat16() if isinstance(inputs, Tensor) else inputs
    rounded = given.float() if isinstance(inputs, Tensor) else inputs
    recording = lrptrain.record(low, given)
    assert recording.logits.dtype == torch.bfloat16
    # Every operation forwards and backwards rounds once, by half an eps: their errors add up at most, to first order.
    bound = 2 * len(recording.tape.nodes) * torch.finfo(torch.bfloat16).eps / 2
    for name in ("attnlrp", "gamma_lrp", "generic_attention", "rollout", "raw_attention", "attention_flow"):
        maps = recording.attribute(1, name).scores, lrptrain.attribute(exact, rounded, 1, name).scores
        assert relative_error(*maps).max() < bound, name
        assert min(float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in zip(*maps, strict=True)) > 0.98, name


def test_a_composite_of_the_users_is_sensitive():
    model = tiny_vit().eval().bfloat16()
    rules = {"linear": lrptrain.rules.epsilon()}
    exact = lrptrain.attribute(copy.deepcopy(model).float(), images().bfloat16().float(), 1, "attnlrp", composite=rules)
    low = lrptrain.attribute(model, images().bfloat16(), 1, "attnlrp", composite=rules)
    assert torch.equal(low.scores, exact.scores)
    with lrptrain.use_rules(rules):
        assert torch.equal(lrptrain.attribute(model, images().bfloat16(), 1, "attnlrp").scores, exact.scores)
    with lrptrain.register_rule("linear", lrptrain.rules.epsilon()):
        assert torch.equal(lrptrain.attribute(model, images().bfloat16(), 1, "attnlrp").scores, exact.scores)
        # What propagates no relevance is computed as before.
        assert lrptrain.attribute(model, images().bfloat16(), 1, "input_x_gradient").logits.dtype == torch.bfloat16


def test_weights_of_both_kinds_under_autocast():
    model = tiny_vit().eval()
    model.blocks[0].mlp.bfloat16()
    exact = lrptrain.attribute(copy.deepcopy(model).float(), images(), 1, "transformer_attribution").scores
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(lrptrain.attribute(model, images(), 1, "transformer_attribution").scores, exact)
        assert lrptrain.attribute(model, images(), 1, "generic_attention").scores.isfinite().all()


def test_a_loss_on_a_map_reaches_half_weights():
    model = tiny_vit().eval().bfloat16()
    single_model = copy.deepcopy(model).float()
    for net, x in ((model, images().bfloat16()), (single_model, images().bfloat16().float())):
        lrptrain.attribute(net, x, 1, "transformer_attribution", create_graph=True).scores.square().sum().backward()
    compared = 0
    for low, exact in zip(model.parameters(), single_model.parameters(), strict=True):
        assert (low.grad is None) == (exact.grad is None)
        if low.grad is not None and exact.grad is not None:
            compared += 1
            assert torch.equal(low.grad, exact.grad.bfloat16())
    assert compared


class Closed(nn.Module):
    """A model that cannot be copied, or of which a copy runs the model's own weights."""

    def __init__(self, copies: bool):
        super().__init__()
        self.net = tiny_vit()
        # A generator cannot be copied.
        self.run: Any = (lambda x: self.net(x)) if copies else (number for number in range(0))
        self.copies = copies

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x) if self.copies else self.net(x)


@pytest.mark.parametrize("copies", [False, True])
def test_what_cannot_run_in_float32_is_refused_with_a_way_out(copies):
    model = Closed(copies).eval().bfloat16()
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"half precision.*call model.float\(\)") as error:
        lrptrain.attribute(model, images().bfloat16(), 1, "transformer_attribution")
    assert "\n" not in str(error.value)
    assert lrptrain.attribute(model, images().bfloat16(), 1, "attnlrp").scores.isfinite().all()
    assert lrptrain.attribute(model.float(), images(), 1, "transformer_attribution").scores.isfinite().all()


def test_a_copy_keeps_hooks_and_computed_weights():
    model: Any = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Linear(3, 2)).bfloat16()
    seen: list[torch.dtype] = []
    model[1].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    model[1].notes = model[1].weight * 2  # a tensor with a graph, which torch does not copy
    x = torch.randn(2, 4)
    copied: Any = model_in_float32(model, keep_graph=False)
    expected = nn.functional.linear(
        nn.functional.linear(x, copied[0].weight, model[0].bias.float()),
        *(p.float() for p in (model[1].weight, model[1].bias)),
    )
    torch.testing.assert_close(copied(x), expected)
    assert seen == [torch.float32]
    assert all(isinstance(parameter, nn.Parameter) for parameter in copied.parameters())
    assert model(x.bfloat16()).dtype == torch.bfloat16


def test_autocast_is_as_before_after_an_exception():
    def fail() -> None:
        with without_autocast():
            assert not torch.is_autocast_enabled("cpu")
            raise KeyError

    with torch.autocast("cpu", torch.float16):
        with pytest.raises(KeyError):
            fail()
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.float16


# -- A training step under autocast -----------------------------------------------------------------------------------


def guided_gradient(name: str, record: bool, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """The map of a step's own forward pass, and the gradient of a loss on it, at all weights."""
    model, target = tiny_vit().eval(), torch.tensor([0, 1, 2, 1])
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        with intercepted(model, 4, record) as calls:
            model(images())
        scores = (
            calls[0].recording(full_precision=get_method(name, {}).full_precision)
            .attribute(target, name, create_graph=True, **options_of(name)).scores
        )  # fmt: skip
    positive = scores.clamp(min=0)
    loss = (positive[:, :8].sum(1) / positive.sum(1)).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return scores.detach(), torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("name", [name for name in SENSITIVE if name in differentiable()])
def test_guidance_by_sensitive_methods_is_that_of_float32(name, record):
    exact, low = (guided_gradient(name, record, dtype) for dtype in (None, torch.bfloat16))
    assert torch.equal(low[0], exact[0])
    assert torch.equal(low[1], exact[1])


@pytest.mark.parametrize("name", ["attnlrp", "generic_attention", "rollout", "input_x_gradient"])
def test_guidance_by_other_methods_agrees_with_float32(name):
    exact, low = (guided_gradient(name, True, dtype) for dtype in (None, torch.bfloat16))
    assert not torch.equal(low[0], exact[0])  # the step's own pass is used
    # Rounding errors of some dozens of operations in a row, each half an eps of bfloat16 (0.004).
    assert (low[0] - exact[0]).norm() < 8 * torch.finfo(torch.bfloat16).eps * exact[0].norm()
    assert (low[1] - exact[1]).norm() < 32 * torch.finfo(torch.bfloat16).eps * exact[1].norm()
