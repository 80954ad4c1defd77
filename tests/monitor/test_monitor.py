"""An evaluation leaves the process as it was, whatever takes part in it."""

import random

import numpy as np
import torch
from examples import assert_same
from torch import nn

import lrptrain
from lrptrain.loggers.sink import _SINKS, Sink, is_named, register


class Drawing:
    """A logger that draws random numbers, as those do that make up names."""


def generators():
    return [torch.get_rng_state(), list(np.random.get_state(legacy=True))[1:3], random.getstate()]


def test_a_logger_that_draws_random_numbers_changes_none_of_the_training(tmp_path, monkeypatch):
    drawn = []

    def draw(*_):
        drawn.append((torch.rand(1), np.random.rand(), random.random()))

    monkeypatch.setattr("lrptrain.loggers.sink._SINKS", [*_SINKS])
    register(Sink(serves=lambda each: is_named(each, "Drawing"), log_scalars=draw, log_media=draw))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    batches = [{"image": torch.randn(8, 3, 4, 4), "label": torch.arange(8) % 2}]
    monitor = lrptrain.Monitor(
        model, batches, tmp_path, loggers=[Drawing()], method="input_x_gradient", run=lrptrain.Run(on_error="raise")
    )
    before = generators()
    monitor.core.evaluate(monitor._context(0, 0))  # as Lightning's callback does, without `at_rest`
    assert len(drawn) == 2
    assert_same(generators(), before)
