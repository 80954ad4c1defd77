"""What a model answers in a step is compared with what it answers later, as with whole weights."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from lrptrain.monitor.strategy_answers import StrategyAnswers


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)
        self.heads = 2

    def forward(self, x, scale=1.0):
        return {"logits": self.head(self.body(x).view(len(x), self.heads, -1).softmax(-1).flatten(1)) * scale}


def listened(step):
    model = Model()
    answers = StrategyAnswers(model)
    step(model)
    answers.stop()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return model, answers


def test_the_same_answer_to_the_same_call_passes():
    x = torch.randn(2, 4)
    model, answers = listened(lambda model: (model(x, scale=3.0), model(x)))
    x.zero_()  # what the step was given is kept as it was
    answers.check(nullcontext)
    with torch.no_grad():
        model.head.weight *= 1 + 1e-5
    answers.check(nullcontext)


def test_another_answer_is_refused_with_the_way_out():
    model, answers = listened(lambda model: model(torch.randn(2, 4)))
    model.heads = 1
    with pytest.raises(ValueError, match=r"Model with whole weights, .* \(differs by .*heads // processes"):
        answers.check(nullcontext)
    model.heads = 4
    with pytest.raises(ValueError, match=r"under its strategy \(shape '\[2, 4, -1\]' is invalid"):
        answers.check(nullcontext)
    model.heads = 2
    model.head = nn.Linear(6, 1)
    with pytest.raises(ValueError, match=r"\(shape \[2, 1\], not \[2, 3\]\)"):
        answers.check(nullcontext)


def test_of_a_step_that_calls_parts_the_parts_are_compared():
    model, answers = listened(lambda model: model.head(model.body(torch.randn(2, 4)).relu()))
    model.heads = 1  # which the step does not read
    answers.check(nullcontext)
    with torch.no_grad():
        model.body.bias += 1
    with pytest.raises(ValueError, match="Linear with whole weights"):
        answers.check(nullcontext)


def test_half_precision_may_differ_by_its_rounding():
    x = torch.randn(2, 4)
    _, answers = listened(lambda model: model.bfloat16()(x.bfloat16()))
    answers._model.float()
    answers._calls = {answers._model: ((x,), {})}
    answers.check(nullcontext)


def test_a_step_that_calls_nothing_and_answers_that_are_not_finite_pass():
    listened(lambda model: None)[1].check(nullcontext)
    listened(lambda model: model(torch.full((2, 4), torch.nan)))[1].check(nullcontext)
