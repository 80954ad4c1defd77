"""Custom autograd functions: relevance goes by what they compute, gradients by their own backward pass."""

import ctypes
import math

import pytest
import torch
from model_zoo import randomised
from small_models import RELEVANCE, Block, Small, patches, raises, same
from torch import Tensor, nn

import lrptrain

METHODS = (*RELEVANCE, "attnlrp", "gamma_lrp", "epsilon_lrp", "rollout")


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


class Gelu(torch.autograd.Function):
    """As Bloom writes it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(gelu(leaf), leaf, gradient)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Unseen(Double):
    @staticmethod
    def forward(ctx, x):
        with torch._C.DisableTorchFunction():  # as a kernel that is no function of torch
            return x * 2


class WrittenByAKernel(Double):
    @staticmethod
    def forward(ctx, x):
        y = x * 1
        ctypes.memset(y.data_ptr(), 0, y.nbytes // 2)  # no version of the tensor tells
        return y


class NoBackward(Double):
    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("not in eval mode")


def under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return Double.apply(x)


FUNCTIONS = {
    "elementwise": (Gelu.apply, gelu),
    "linear": (Double.apply, lambda x: x * 2),
    "under no_grad": (under_no_grad, lambda x: x * 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_equals_its_operations(name):
    one, other = FUNCTIONS[name]
    same(Small(Block(one)), Small(Block(other)), patches(), METHODS)


def test_gradients_are_those_of_its_backward_pass_and_relevance_is_not():
    images, model = patches(), Small(Block(Reversed.apply))
    model.position.requires_grad_(False)
    leaf = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)
    product = (gradient * leaf).detach().sum(1)
    found = lrptrain.attribute(model, images, 1, "input_x_gradient")
    torch.testing.assert_close(found.scores.sum(1), product.flatten(1).sum(1), rtol=1e-9, atol=1e-12)
    same(model, Small(Block(lambda x: x.view_as(x))), images, ("attnlrp", "lrp", "rollout"))


@pytest.mark.parametrize("function", [Unseen, WrittenByAKernel])
def test_what_is_computed_unseen_is_refused(function):
    raises(function.apply, rf"{function.__name__}Backward in module 'qkv' made a tensor outside of torch's functions")


def test_a_backward_pass_that_fails_is_told_of():
    model = Small(Block(NoBackward.apply))
    same(model, Small(Block(lambda x: x * 2)), patches(), ("attnlrp", "rollout"))
    for method in ("input_x_gradient", "integrated_gradients"):
        with pytest.raises(lrptrain.UnsupportedModelError, match="backward pass fails: ValueError: not in eval mode"):
            lrptrain.attribute(model, patches(), 1, method)


MASK = torch.zeros(16, 16, dtype=torch.bool)
MASK[3:, 12:] = MASK[5] = True  # no query sees the last tokens; one sees nothing


def masked_softmax(scores: Tensor) -> Tensor:
    probabilities = scores.masked_fill(MASK, torch.finfo(scores.dtype).min).softmax(-1)
    return probabilities.masked_fill(MASK, 0.0)


class MaskedSoftmax(torch.autograd.Function):
    """As DeBERTa and SEW-D write it."""

    @staticmethod
    def forward(ctx, scores):
        probabilities = scores.masked_fill(MASK, torch.finfo(scores.dtype).min).softmax(-1)
        probabilities.masked_fill_(MASK, 0.0)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, gradient):
        (p,) = ctx.saved_tensors
        return p * (gradient - (p * gradient).sum(-1, keepdim=True))


class DoubledProbabilities(MaskedSoftmax):
    @staticmethod
    def forward(ctx, scores):
        probabilities = scores.softmax(-1)
        ctx.save_for_backward(probabilities)
        return probabilities * 2


class Attending(nn.Module):
    """Two blocks of attention over the patches, with a softmax of one's own."""

    def __init__(self, softmax):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.qkv = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        self.softmax = softmax
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        for qkv in self.qkv:
            q, k, v = (part[:, None] for part in qkv(tokens).chunk(3, -1))
            tokens = tokens + (self.softmax(q @ k.mT / math.sqrt(8)) @ v)[:, 0]
        return self.head(tokens.mean(1))


def test_a_softmax_as_a_function_is_one():
    one, other = Attending(MaskedSoftmax.apply), Attending(masked_softmax)
    by_gradients = ("transformer_attribution", "gradcam", "input_x_gradient")
    same(one, other, patches(), ("attnlrp", "gamma_lrp", "epsilon_lrp", "lrp", *by_gradients))
    # Of operations, the map is the softmax itself; of a function, what it returns.
    for block, found in zip(
        lrptrain.record(other, patches()).blocks, lrptrain.record(one, patches()).blocks, strict=True
    ):
        torch.testing.assert_close(found.tensor, block.tensor.masked_fill(MASK, 0.0), rtol=1e-12, atol=0)


def test_gradients_at_what_a_function_makes_on_its_way_are_refused():
    model = Attending(DoubledProbabilities.apply)
    same(model, Attending(lambda scores: scores.softmax(-1) * 2), patches(), ("attnlrp", "rollout"))
    for method in ("generic_attention", "transformer_attribution"):
        with pytest.raises(lrptrain.UnsupportedModelError, match="makes the attention maps on its way"):
            lrptrain.attribute(model, patches(), 1, method)
