"""The one table of operations: every activation of torch has a rule in all composites, and in-place calls are seen."""

import numpy as np
import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import Block, Small, patches, raises, same
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import activation

import lrptrain
from lrptrain.relevance.tape import functions
from lrptrain.relevance.tape.functions import ACTIVATIONS, canonical_name, is_in_place

# Modules that are no functions of one entry: attention, a gate, and what normalises over an axis.
OTHERS = {"MultiheadAttention", "GLU", "Softmax", "Softmax2d", "LogSoftmax", "Softmin"}
MODULES = {
    name: getattr(activation, name)(*((0.1, -0.2) if name == "Threshold" else ())).double().eval()
    for name in activation.__all__
    if name not in OTHERS
}
INPLACE = sorted(name for name, module in MODULES.items() if hasattr(module, "inplace"))


class Perceptron(nn.Module):
    """Two dense layers on the pixels of an image, with an activation in between."""

    def __init__(self, function: nn.Module):
        super().__init__()
        self.first, self.second = nn.Linear(48, 16), nn.Linear(16, 3)
        randomised(self)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x.flatten(1))))


@pytest.mark.parametrize("form", ["gradient", "explicit"])
@pytest.mark.parametrize("name", MODULES)
def test_attnlrp_multiplies_by_the_slope_of_every_activation(name, form):
    model = Perceptron(MODULES[name])
    x = patches()[..., :4, :4].contiguous()
    layout = lrptrain.TokenLayout(16, tuple(range(16)), (4, 4))
    found = lrptrain.attribute(model, x, 1, "attnlrp", form=form, layout=layout)
    # R = x * W1^T (g(u) / u * W2), the textbook rule for an elementwise g: relevance passes as it is
    u = model.first(x.flatten(1))
    slope = MODULES[name](u) / u
    expected = x.flatten(1) * ((slope * model.second.weight[1]) @ model.first.weight)
    assert relative_error(found.input, expected.view_as(x).sum(1)).max() < 1e-9


@pytest.mark.parametrize("method", ["transformer_attribution", "lrp", "epsilon_lrp", "gamma_lrp", "partial_lrp"])
@pytest.mark.parametrize("name", MODULES)
def test_every_activation_has_a_rule_in_every_composite(name, method):
    assert lrptrain.attribute(Small(after=MODULES[name]), patches(), 1, method).scores.isfinite().all()


@pytest.mark.parametrize("name", INPLACE)
def test_activations_in_place_equal_those_that_are_not(name):
    arguments = (0.1, -0.2) if name == "Threshold" else ()
    in_place = getattr(activation, name)(*arguments, inplace=True).double().eval()
    one, other = (Small(between=Block(lambda x, f=f: f(x * 1))) for f in (in_place, MODULES[name]))
    maps = [lrptrain.attribute(model, patches(), 1, "attnlrp").scores for model in (one, other)]
    assert relative_error(*maps).max() < 1e-12


@pytest.mark.parametrize("name", sorted(name for name, entry in ACTIVATIONS.items() if entry.inplace_at is not None))
def test_the_position_of_the_flag_is_that_of_torch(name):
    import inspect

    parameters = list(inspect.signature(getattr(F, name)).parameters)
    assert parameters.index("inplace") == ACTIVATIONS[name].inplace_at


def test_the_flag_by_position_counts_for_every_spelling():
    x = torch.zeros(2)
    assert is_in_place(F.relu, (x, True), {})
    assert not is_in_place(F.relu, (x,), {})
    assert is_in_place(F.threshold, (x, 0.1, 0.2, True), {})  # its name in torch is _threshold
    assert not is_in_place(F.threshold, (x, 0.1, True, False), {})
    assert is_in_place(F.celu, (x, 1.0), {"inplace": True})


def test_spellings():
    assert canonical_name(F.logsigmoid) == "logsigmoid"
    assert canonical_name(torch.special.expit) == "sigmoid"
    assert canonical_name(F.threshold) == "threshold"
    assert canonical_name(getattr(Tensor, "celu_", torch.celu_)) == "celu"


def test_softmin_is_the_softmax_of_the_negative():
    one, other = Small(Block(lambda x: F.softmin(x, -1))), Small(Block(lambda x: (-x).softmax(-1)))
    maps = [lrptrain.attribute(model, patches(), 1, "attnlrp").scores for model in (one, other)]
    assert relative_error(*maps).max() < 1e-12


def test_families_are_derived_from_the_table():
    assert ACTIVATIONS.keys() <= functions.ELEMENTWISE
    # What draws random numbers would not give the same activation again.
    random = {"rrelu", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}
    assert not random & functions.POINTWISE
    assert {"celu", "hardsigmoid", "softsign", "logsigmoid", "prelu", "softshrink"} <= functions.POINTWISE
    assert {"gelu", "relu", "silu", "tanh", "sigmoid", "layer_norm"} <= functions.REPEATABLE


def test_overloads_and_reflected_operators():
    assert canonical_name(torch.ops.aten.add.Tensor) == "add"
    assert canonical_name(torch.ops.aten.linear.default) == "linear"
    assert canonical_name(Tensor.__radd__) == "add"
    assert canonical_name(Tensor.__rsub__) == "rsub"
    assert canonical_name(Tensor.__rpow__) == "rpow"


# Numbers of activations that leave torch

LEAVING = {
    "numpy": lambda x: x + torch.from_numpy(x.detach().numpy() * 2),
    "array": lambda x: x * torch.as_tensor(np.asarray(x.detach()) > 0, dtype=x.dtype),
    "tolist": lambda x: x + torch.tensor(x.tolist(), dtype=x.dtype),
    "dlpack": lambda x: x + torch.from_dlpack(x.detach()),
}


@pytest.mark.parametrize("name", LEAVING)
def test_activations_that_leave_torch_are_refused(name):
    raises(LEAVING[name], f"{name} in module 'between' hands activations out of torch")
    with pytest.raises(lrptrain.UnsupportedOperationError, match="hands activations out"):
        lrptrain.attribute(Small(Block(LEAVING[name])), patches(), method="input_x_gradient")


def steered(x: Tensor) -> Tensor:
    return x * 2 if x.mean().item() > -100 and float(x[0, 0, 0]) > -100 else x


GOES_ON = {
    "control flow": (steered, lambda x: x * 2),
    "a constant from numpy": (lambda x: x + torch.from_numpy(np.ones(8)), lambda x: x + 1),
    "a constant that leaves": (lambda x: x + torch.tensor(torch.ones(8).tolist()), lambda x: x + 1),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_numbers_that_are_no_activations_are_nobodys_business(name):
    one, other = GOES_ON[name]
    same(Small(Block(one)), Small(Block(other)), patches())
