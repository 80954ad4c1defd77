"""Methods that run a model several times: each run begins with the model as it was when the map was asked for."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lrptrain
from lrptrain.relevance.types import UnsupportedModelError

METHODS = ("leave_one_out", "integrated_gradients", "smoothgrad", "kernel_shap", "lime")
OPTIONS: dict[str, dict[str, Any]] = {name: {"at_once": 4} for name in METHODS}


class Stateful(nn.Module):
    """A text model of which each run answers as a factor says, that the run itself may change."""

    def __init__(self, factor: Any = None):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(20, 6)
        self.layer = nn.Linear(6, 3)
        self.factor = factor or (lambda model, x: 1.0)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)
        return self.layer(torch.tanh(x)).mean(1) * self.factor(self, x)


class Count:
    """An attribute that counts the runs."""

    def __init__(self):
        self.calls = 0

    def __call__(self, model: nn.Module, x: Tensor) -> float:
        self.calls += 1
        return 1.0 / self.calls


def running_buffer(model: Any, x: Tensor) -> Tensor:
    model.runs += 1
    return 1.0 / model.runs


class ByShape:
    """A cache by the input's shape, of a number that depends on the input."""

    def __init__(self):
        self.cache: dict[torch.Size, Tensor] = {}

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        if x.shape not in self.cache:
            self.cache[x.shape] = 1 + x.square().mean((1, 2))[:, None]
        return self.cache[x.shape]


def ids() -> Tensor:
    return torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0))


def map_of(model: nn.Module, method: str) -> Tensor:
    return lrptrain.attribute(model.eval(), {"input_ids": ids()}, 1, method, **OPTIONS[method]).scores


@pytest.mark.parametrize("method", METHODS)
def test_a_counter_of_calls(method):
    model: Any = Stateful(Count())
    assert torch.allclose(map_of(model, method), map_of(Stateful(), method), atol=1e-6)
    assert model.factor.calls == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_running_buffer(method):
    model: Any = Stateful(running_buffer)
    model.register_buffer("runs", torch.zeros(()))
    assert torch.allclose(map_of(model, method), map_of(Stateful(), method), atol=1e-6)
    assert model.runs == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_cache_by_the_shape_of_the_input(method):
    """A run of other words in as many rows must not read what was cached for those before."""

    def uncached(model: nn.Module, x: Tensor) -> Tensor:
        return 1 + x.square().mean((1, 2))[:, None]

    cached: Any = Stateful(ByShape())
    assert torch.allclose(map_of(cached, method), map_of(Stateful(uncached), method), atol=1e-6)
    assert cached.factor.cache == {}


def test_a_second_pass_for_the_tokens_begins_alike():
    """Of an image the tokens are found on a tape, in a pass of its own."""

    class Images(Stateful):
        def __init__(self, factor: Any = None):
            super().__init__(factor)
            self.patches = nn.Conv2d(3, 6, 4, 4)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            return self.layer(torch.tanh(tokens)).mean(1) * self.factor(self, tokens)

    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    counting, plain = Images(Count()).eval(), Images().eval()
    plain.load_state_dict(counting.state_dict())
    for method in ("leave_one_out", "input_x_gradient", "integrated_gradients"):
        scores, expected = (lrptrain.attribute(model, images, 1, method).scores for model in (counting, plain))
        assert torch.allclose(scores, expected, atol=1e-6)


def test_a_float32_copy_begins_alike():
    counting, plain = Stateful(Count()).bfloat16(), Stateful().bfloat16()
    assert torch.allclose(map_of(counting, "leave_one_out"), map_of(plain, "leave_one_out"), atol=1e-6)


def test_what_cannot_be_put_back_is_refused_where_it_counts():
    numbers = itertools.count(1)
    model: Any = Stateful(lambda model, x: 1.0 / next(model.numbers))
    model.numbers = numbers
    with (
        pytest.warns(lrptrain.RelevanceWarning, match="'numbers'"),
        pytest.raises(UnsupportedModelError, match=r"each run changes .*'numbers'.*attnlrp") as error,
    ):
        map_of(model, "leave_one_out")
    assert "\n" not in str(error.value)
    harmless: Any = Stateful(lambda model, x: 1.0 + 0 * next(model.numbers))
    harmless.numbers = itertools.count()
    with pytest.warns(lrptrain.RelevanceWarning, match="'numbers'"):
        scores = map_of(harmless, "leave_one_out")
    assert torch.allclose(scores, map_of(Stateful(), "leave_one_out"), atol=1e-6)
