"""What the tape takes from torch without a promise: each says here what is missing when torch changes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lrptrain.relevance.tape import functions, running
from lrptrain.relevance.tape.functions import BACKWARD, DECOMPOSED, canonical_name, enterable


class Seen(TorchFunctionMode):
    def __init__(self, enters=()):
        super().__init__()
        self.names: list[str] = []
        self.enters = enters

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(canonical_name(func))
        if self.names[-1] in self.enters:
            with self:
                return enterable(func)(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rebuilt", [True, False])
def test_functions_of_torch_can_be_entered(rebuilt, monkeypatch):
    """By `torch.overrides.redispatch_function` where torch has it; by a function without modes where it has not."""
    if rebuilt:
        monkeypatch.delattr(torch.overrides, "redispatch_function", raising=False)
    x = torch.randn(2, 3, requires_grad=True)
    with Seen(DECOMPOSED) as seen:
        F.softmin(x, 1)
        F.normalize(x)
        nn.MultiheadAttention(3, 1)(x, x, x)
    entered = {"softmin", "softmax", "normalize", "norm", "multi_head_attention_forward"} - set(seen.names)
    assert not entered - {"norm"}, f"the bodies of torch's functions no longer run under a mode: {entered}"
    assert {"matmul", "bmm", "baddbmm", "scaled_dot_product_attention"} & set(seen.names)
    with Seen() as seen:
        (gradient,) = enterable(torch.autograd.grad)(x.sum(), x)
    assert torch.equal(gradient, torch.ones(2, 3))
    assert not BACKWARD & set(seen.names), "torch.autograd.grad arrives at the mode as a call, instead of running in it"


def test_the_call_of_a_module_has_the_frame_that_the_tape_looks_for():
    why = "nn.Module.__call__ no longer runs through _call_impl(self, ...): see running.py"
    assert running._CALL is nn.Module._call_impl.__code__, why
    assert running._CALL.co_varnames[0] == "self", why
    seen = []

    class Inner(nn.Module):
        def forward(self, x):
            seen.append(running.RunningModule(model).name())
            return x

    model = nn.Sequential(nn.Sequential(Inner()))
    model(torch.zeros(1))
    assert seen == ["0.0"], why


def test_vmap_can_be_asked_for():
    why = "torch._C._functorch has other questions: see functions.py"
    x = torch.zeros(2, 3)
    inside = []

    def look(row):
        inside.append((functions.is_transforming(), functions.unwrapped(row) is x))
        return row

    assert not functions.is_transforming(), why
    torch.vmap(look)(x)
    assert inside == [(True, True)], why


def test_flex_attention_asks_for_gradients_where_the_tape_answers():
    from torch.nn.attention import flex_attention

    assert "requires_grad" in flex_attention._validate_device.__code__.co_names, "see FLEX_ATTENTION in tape.py"


def test_the_switch_of_gradients_arrives_at_the_mode():
    with Seen() as seen, torch.no_grad():
        pass
    assert "set_grad_enabled" in seen.names, "torch.no_grad inside of a model would cut the tape's graph"


def test_numbers_leave_torch_by_calls_that_the_mode_sees():
    import numpy as np

    x = torch.zeros(2)
    with Seen() as seen:
        x.numpy(), np.asarray(x), x.tolist(), x[0].item(), np.from_dlpack(x)
    assert {"numpy", "array", "tolist", "item", "dlpack"} <= set(seen.names), "an export is no longer seen: EXPORTS"
