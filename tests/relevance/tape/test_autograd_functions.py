"""Custom autograd functions: relevance goes by what they compute, gradients by their own backward pass."""

import ctypes
import math
from collections.abc import Callable

import pytest
import torch
from forks import start_fork
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


class Filled(Double):
    @staticmethod
    def forward(ctx, x):
        return x.clone().fill_(1.0)


class Compared(Double):
    @staticmethod
    def forward(ctx, x):
        return x.clone().copy_(x > 0)


class Mirrored(Double):
    @staticmethod
    def forward(ctx, x):
        y = x * 1
        ctypes.memmove(y.data_ptr(), (-x).data_ptr(), y.nbytes)
        return y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [Unseen, WrittenByAKernel, Filled, Compared, Mirrored])
def test_what_is_computed_unseen_is_refused(function, dtype):
    match = rf"{function.__name__}Backward in module 'qkv' made a tensor outside of torch's functions"
    with pytest.raises(lrptrain.UnsupportedOperationError, match=match):
        lrptrain.attribute(Small(Block(function.apply)).to(dtype), patches().to(dtype), method="lrp")


def kernel(out: Tensor, x: Tensor) -> Tensor:
    """Write x into a buffer, of which no call of torch tells."""
    ctypes.memmove(out.data_ptr(), x.data_ptr(), x.nbytes)
    return out


BUFFERS = {
    "empty_like": lambda x: kernel(torch.empty_like(x), x) * 2 + x,
    "new_empty": lambda x: x * kernel(x.new_empty(x.shape), x),
    "zeros_like": lambda x: kernel(torch.zeros_like(x), x) * 2 + x,
    "full": lambda x: kernel(torch.full(x.shape, 0.5, dtype=x.dtype), x) + x,
    "written before": lambda x: kernel(torch.empty_like(x).zero_(), x) + x,
    "a view of it": lambda x: kernel(torch.empty_like(x).view(-1), x).view(x.shape) + x,
}


def as_function(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    class OfAKernel(Double):
        @staticmethod
        def forward(ctx, x):
            return forward(x.contiguous())

    return OfAKernel.apply


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("wrap", [as_function, lambda forward: lambda x: forward(x.contiguous())])
def test_a_buffer_that_a_kernel_fills_is_refused_every_time(wrap, name):
    for _ in range(2):  # the memory of the second may be that of the first, with the same numbers in it
        raises(wrap(BUFFERS[name]), "reads memory that was written outside of torch's functions")


def test_a_buffer_that_torch_fills_is_served():
    def forward(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for i in range(x.shape[1]):
            out[:, i] = x[:, i] * 3
        shift = torch.zeros(8, dtype=x.dtype)
        shift[2:] = 0.5
        shift.add_(1)
        return out + shift

    def plain(x: Tensor) -> Tensor:
        return x * 3 + torch.tensor([1.0] * 2 + [1.5] * 6, dtype=x.dtype)

    same(Small(Block(as_function(forward))), Small(Block(plain)), patches(), ("attnlrp", "lrp", "rollout"))
    same(Small(Block(forward)), Small(Block(plain)), patches())


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def test_a_function_may_write_into_what_it_is_given():
    def tripled(x: Tensor) -> Tensor:
        x = x.clone()
        Tripled.apply(x)
        return x

    same(Small(Block(tripled)), Small(Block(lambda x: x * 3)), patches(), ("attnlrp", "lrp", "input_x_gradient"))


def test_a_function_that_writes_into_a_view_is_refused():
    def tripled(x: Tensor) -> Tensor:
        x = x.clone()
        Tripled.apply(x[:, :2])
        return x

    raises(tripled, "mul in module 'between' writes, inside of a custom autograd function, into a view it was given")


class Marking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch._C.DisableTorchFunction():  # as a kernel
            x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class MarksAView(nn.Module):
    def forward(self, x):
        x = x.flatten(1).clone()
        Marking.apply(x[:, :2])
        return x * 1


def refuses_marking():
    with pytest.raises(lrptrain.UnsupportedOperationError):
        lrptrain.attribute(MarksAView(), torch.ones(1, 1, 2, 2), 1, "input_x_gradient")


def test_marking_a_view_as_written_ends():
    """torch sets the hooks of the view while it holds the view's lock: asked for the graph there, it waits for ever."""
    process = start_fork(refuses_marking)
    process.join(120)
    process.kill()  # who waits for ever does not end by itself
    assert process.exitcode == 0


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
