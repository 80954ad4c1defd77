"""Listening to a model that somebody else calls."""

from typing import Any

import pytest
import torch
from small_models import tiny_vit
from torch import nn

import lrptrain
from lrptrain.relevance import UnsupportedOperationError
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes import interception
from lrptrain.relevance.passes.interception import checkpoints, intercepted

METHODS = ("generic_attention", "input_x_gradient")


def vit(**options):
    return tiny_vit(**options).double()


def images(samples=4):
    return torch.randn(samples, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Picky(nn.Module):
    """Takes what it is given in several ways, with batch norm and dropout."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.linear = nn.BatchNorm2d(3).double(), nn.Dropout(0.5), nn.Linear(48, 2).double()

    def forward(self, image, scale=None, *, names=(), **others):
        x = self.drop(self.norm(image)).flatten(1)
        return self.linear(x if scale is None else x * scale[:, None])


@pytest.mark.parametrize("record", [True, False])
def test_the_call_is_as_without_listening(record):
    model, x = vit(), images()
    with intercepted(model, 4, record) as calls:
        assert not calls
        found = model(x)
    (call,) = calls
    torch.testing.assert_close(found, vit()(x))
    assert call.output is found
    assert (call.tape is not None) == record
    assert (call.name, call.samples, call.failure) == ("x", 4, None)
    assert call.explained is x
    assert not x.requires_grad
    assert "forward" not in vars(model)


@pytest.mark.parametrize("rows", [None, [2, 0]])
@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_its_maps_are_those_of_a_pass_of_their_own(method, record, rows):
    model, x, target = vit(), images(), torch.tensor([0, 1, 2, 1])
    chosen = torch.arange(4) if rows is None else torch.tensor(rows)
    with intercepted(model, 4, record) as calls:
        model(x)
    found = calls[0].recording(None if rows is None else chosen).attribute(target[chosen], method)
    expected = lrptrain.attribute(model, x[chosen], target[chosen], method)
    torch.testing.assert_close(found.scores, expected.scores)
    assert found.grid == (4, 4)


def test_the_first_call_of_the_right_size_counts():
    model, x = vit(), images()
    with intercepted(model, 4, True) as calls:
        model(x[:3])
        with torch.no_grad():
            model(x)  # a teacher, say
        assert not calls
        first = model(x)
        model(x + 1)
    assert len(calls) == 1
    assert calls[0].output is first


@pytest.mark.parametrize("record", [True, False])
def test_arguments_by_name(record):
    model, x, scale = Picky().eval(), images()[..., :4, :4], torch.arange(4.0).double()
    with intercepted(model, 4, record) as calls:
        found = model(x, scale, names=("a",), more=3)
    torch.testing.assert_close(found, model(x, scale))
    assert calls[0].arguments.keys() == {"image", "scale", "names", "more"}
    chosen = calls[0].chosen(torch.tensor([3, 1]))
    assert chosen["scale"].tolist() == [3, 1]
    assert (chosen["names"], chosen["more"]) == (("a",), 3)
    torch.testing.assert_close(calls[0].again(x[:2], torch.tensor([3, 1])), model(x[:2], scale[[3, 1]]))


def test_arguments_without_a_name_are_not_heard():
    class Open(nn.Module):
        def forward(self, *inputs):
            return inputs[0].flatten(1)[:, :2]

    model = Open()
    with intercepted(model, 4, True) as calls:
        model(images())
    assert not calls


@pytest.mark.parametrize("record", [True, False])
def test_it_trains_as_it_would(record):
    """Batch norm counts the batch once, dropout draws the same numbers, and another call leaves both alone."""
    x, outcomes = images()[..., :4, :4], []
    for listens in (False, True):
        torch.manual_seed(1)
        model = Picky()
        torch.manual_seed(2)
        if listens:
            with intercepted(model, 4, record) as calls:
                found = model(x)
            calls[0].again(x + 1)
            calls[0].recording()
        else:
            found = model(x)
        outcomes.append([found, *model.buffers(), torch.rand(3)])
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-15 if record else 0.0)


def test_a_forward_of_its_own_comes_back_and_an_error_leaves_nothing():
    model, x = vit(), images()
    own = model.forward
    model.forward = own
    with intercepted(model, 4, True) as calls:
        model(x)
    assert len(calls) == 1
    assert vars(model)["forward"] is own
    del model.forward
    with pytest.raises(ZeroDivisionError), intercepted(model, 4, True):
        raise ZeroDivisionError
    assert "forward" not in vars(model)
    with pytest.raises(AssertionError, match="Input width"), intercepted(model, 4, True):
        model(x[..., :8])
    assert "forward" not in vars(model)


@pytest.mark.parametrize("record", [True, False])
def test_two_listen_at_a_time(record):
    """As two guidances do: the one on top hears what the other has changed."""
    model, x = vit(), images()
    with (
        intercepted(model, 4, record, change=lambda arguments, name: {name: 2 * arguments[name]}) as beneath,
        intercepted(model, 4, record=False) as on_top,
    ):
        found = model(x)
    assert [len(calls) for calls in (beneath, on_top)] == [1, 1]
    assert on_top[0].output is found
    assert on_top[0].explained is x
    assert beneath[0].original is x
    torch.testing.assert_close(found, vit()(2 * x))
    assert "forward" not in vars(model)


def test_compiled_models_are_heard():
    model, x = vit(), images()
    compiled: Any = torch.compile(model, backend="aot_eager")
    with intercepted(compiled, 4, True) as calls:
        found = compiled(x)
    assert unwrap(compiled) is model
    assert calls[0].model is model
    torch.testing.assert_close(found, model(x))


def test_a_recording_that_fails_is_told_and_the_model_runs_without(monkeypatch):
    def fails(*arguments, **others):
        raise UnsupportedOperationError("a gap")

    model, x = vit(), images()
    monkeypatch.setattr(interception, "forward_on_tape", fails)
    with intercepted(model, 4, True) as calls:
        found = model(x)
    torch.testing.assert_close(found, model(x))
    assert isinstance(calls[0].failure, UnsupportedOperationError)
    assert calls[0].tape is None


def test_the_loss_of_the_caller_and_of_the_map_share_one_backward_pass():
    model, x = vit(), images()
    with intercepted(model, 4, True) as calls:
        task = model(x).logsumexp(1).sum()
    guidance = calls[0].recording().attribute(1, create_graph=True).scores.square().sum()
    (task + guidance).backward()
    other = vit()
    for block in other.blocks:
        block.attn.fused_attn = False
    expected = lrptrain.attribute(other, x, 1, create_graph=True).scores.square().sum()
    (other(x).logsumexp(1).sum() + expected).backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-12)


def test_who_checkpoints():
    model = vit()
    assert not checkpoints(model)
    model.set_grad_checkpointing()
    assert checkpoints(nn.Sequential(model))


class Turned(nn.Module):
    """A norm in evaluation mode, the gradient at whose output is transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2, eps=0.0, affine=False).double().eval()

    def forward(self, image):
        at_output = torch.arange(8.0, dtype=image.dtype).view(2, 1, 2, 2).permute(1, 3, 0, 2)
        return _Times.apply(self.norm(image), at_output)


class _Times(torch.autograd.Function):
    """The sum of products, with a gradient whose memory is in another order, as the models' own transposes make it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return (x * weight).sum().view(1, 1)

    @staticmethod
    def backward(ctx, grad):
        return ctx.weight.mul(grad.item()), None


def test_another_call_has_the_right_gradient_through_a_norm():
    model, image = Turned(), torch.zeros(1, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    with intercepted(model, 1, False) as calls:
        model(torch.ones_like(image))
    calls[0].again(image).sum().backward()
    # The norm does nothing: mean 0, variance 1.
    expected = torch.arange(8.0, dtype=image.dtype).view(2, 1, 2, 2).permute(1, 3, 0, 2)
    assert image.grad is not None
    assert torch.equal(image.grad, expected)


class Pair(nn.Module):
    """Two texts in one table; the sum of their first features, the second one's with a factor."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4).double()
        self.head = nn.Linear(4, 2).double()

    def forward(self, input_ids, input_ids_b):
        return self.head(self.embedding(input_ids).mean(1) + 3 * self.embedding(input_ids_b).mean(1))


def test_equal_texts_are_two():
    model = Pair()
    ids = torch.arange(8).view(2, 4)
    with intercepted(model, 2, True) as calls:
        model(input_ids=ids, input_ids_b=ids)
    found = calls[0].recording().attribute(1, "input_x_gradient").scores
    torch.testing.assert_close(found, (model.embedding(ids) * model.head.weight[1] / 4).sum(-1).detach())
