"""Linear layers that keep nothing of an input that can be made again, against those that do."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from lrptrain.relevance.tape.double_backward.gelu import gelu
from lrptrain.relevance.tape.double_backward.layer_norm import layer_norm
from lrptrain.relevance.tape.double_backward.linear import is_made_again, linear

MAKERS = {
    "gelu": lambda x: gelu(x),
    "layer_norm": lambda x: layer_norm(x, x.new_tensor([1.0, -2.0, 0.5]), x.new_tensor([0.5, 0.0, 1.0]), 1e-5),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def given(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_first_and_second_derivatives_are_those_of_finite_differences(make):
    def function(x, weight, bias):
        read = make(x)
        assert is_made_again(read)
        return linear(read, weight, bias)

    tensors = (given(2, 2, 3), given(2, 3), given(2))
    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


def test_a_third_derivative_is_that_of_a_layer_that_keeps_its_input(make):
    results = []
    for function in (linear, F.linear):
        tensors = [given(2, 4, 3), given(2, 3)]
        numbers = function(make(tensors[0]), tensors[1])
        for _ in range(3):
            gradients = torch.autograd.grad(numbers.pow(2).sum(), tensors, create_graph=True)
            numbers = torch.cat([x.flatten() for x in gradients])
        results.append(numbers.detach())
    torch.testing.assert_close(*results, rtol=1e-11, atol=0)


def holds_its_input(function, make) -> bool:
    read = make(given(4, 3))
    memory = StorageWeakRef(read.untyped_storage())
    output = function(read, given(2, 3), given(2))
    del read
    assert output.requires_grad
    return not memory.expired()


def test_the_graph_holds_none_of_the_input(make):
    assert holds_its_input(F.linear, make)
    assert not holds_its_input(linear, make)


def test_what_was_changed_since_is_not_made_again(make):
    read = make(given(4, 3))
    assert is_made_again(read)
    assert not is_made_again(read.view(4, 3))
    assert not is_made_again(read * 2)
    assert not is_made_again(given(4, 3).detach())
    read.detach().mul_(2)
    assert not is_made_again(read)


def test_what_lies_in_another_order_in_memory_is_kept():
    read = gelu(given(3, 4).mT)
    assert not read.is_contiguous()
    assert not is_made_again(read)


@pytest.mark.parametrize(
    "others", [torch.autograd.graph.save_on_cpu(), torch.autograd.graph.disable_saved_tensors_hooks("not here")]
)
def test_who_keeps_tensors_elsewhere_keeps_these(others):
    read = gelu(given(4, 3))
    with others:
        assert not is_made_again(read)
    assert is_made_again(read)


def test_a_weight_that_is_overwritten_before_its_gradient_is_an_error():
    weight = given(2, 3)
    output = linear(gelu(given(4, 3)), weight)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(
        RuntimeError, match=r"modified by an inplace operation: a weight .* version 1, expected version 0"
    ):
        output.sum().backward()


def test_an_input_that_is_overwritten_before_its_gradient_is_an_error():
    x = given(4, 3)
    output = linear(gelu(x), given(2, 3))
    x.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_graph_is_used_up_as_any_other():
    loss = linear(gelu(given(4, 3)), given(2, 3)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
