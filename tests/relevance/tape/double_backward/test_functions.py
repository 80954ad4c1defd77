"""Which calls get a function with a second derivative of their own."""

import torch
from torch.nn import functional as F

from lrptrain.relevance.tape.double_backward.functions import twice_differentiable
from lrptrain.relevance.tape.double_backward.gelu import gelu
from lrptrain.relevance.tape.double_backward.linear import linear


def test_a_linear_layer_behind_a_gelu_keeps_nothing_of_its_input():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    x = torch.ones(4, 3, requires_grad=True)
    made = gelu(x)
    assert twice_differentiable("linear", F.linear, (made, weight), {}) is linear
    assert twice_differentiable("linear", F.linear, (made, weight), {"bias": None}) is linear
    assert twice_differentiable("linear", F.linear, (x, weight), {}) is F.linear
    assert twice_differentiable("linear", F.linear, (), {"input": made, "weight": weight}) is F.linear
    assert twice_differentiable("linear", F.linear, (made, weight.double()), {}) is F.linear
    with torch.no_grad():
        assert twice_differentiable("linear", F.linear, (made, weight), {}) is F.linear
