"""A program that makes errors of warnings, and a machine without shared memory: neither ends a training."""

import warnings

import pytest
import torch
from own_trainers import TRAINERS, N, Named, in_a_loop
from setting import data
from torch import nn

from lrptrain import RelevanceWarning, terminal
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.terminal import WrappedWarning
from lrptrain.trainers.processes import SharedText


class Net(Named):
    def forward(self, image, labels=None):
        return super().forward(image.nan_to_num(), labels)  # so that training itself bears the sample


@pytest.fixture
def errors(monkeypatch):
    """As `python -W error`, of what this package says."""
    monkeypatch.setattr(terminal, "MAY_RAISE", False)
    with warnings.catch_warnings():
        for category in (WrappedWarning, RelevanceWarning):
            warnings.simplefilter("error", category)
        yield


def images(bad=None):
    columns = {"image": data(N)["image"]}
    if bad is not None:
        columns["image"][bad] = torch.nan
    return columns


# In Lightning the sanity check reads the first two batches of eight, and refuses what is wrong there.
@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("train", TRAINERS)
def test_a_sample_of_nan(train, tmp_path, caplog):
    watching = train(tmp_path, Net(), images(bad=20), {"on_error": "warn"})
    assert watching.failures == 0
    assert watching.scalars["relevance/left_out"] == 1
    assert watching.scalars["relevance/samples"] == N - 1
    assert "'image' holds NaN or infinity" in caplog.text


@pytest.mark.usefixtures("errors")
def test_a_failure(tmp_path, monkeypatch, caplog):
    model, evaluate = Net(), Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", fails_after_the_first(evaluate))
    watching = TRAINERS[0](tmp_path, model, images(), {"on_error": "warn"})
    assert watching.failures >= 1
    assert "RuntimeError: only here" in caplog.text
    assert all(p.isfinite().all() for p in model.parameters())


def fails_after_the_first(evaluate):
    calls = []

    def evaluated(self, samples, *arguments, **options):
        calls.append(len(samples))
        if len(calls) > 1:
            raise RuntimeError("only here")
        return evaluate(self, samples, *arguments, **options)

    return evaluated


@pytest.mark.usefixtures("errors")
def test_a_remark_on_a_map_is_no_failure(tmp_path):
    """A head of zeros has nothing to explain: that is said, and costs no evaluation."""
    model = Net()
    nn.init.zeros_(model.net.head.weight), nn.init.ones_(model.net.head.bias)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error", RelevanceWarning)
        warnings.simplefilter("error", WrappedWarning)
        watching = in_a_loop(tmp_path, model, images(), {"on_error": "warn"})
    assert watching.failures == 0
    assert watching.scalars["relevance/samples"] == N
    assert [each for each in seen if issubclass(each.category, RelevanceWarning)], "it is said nevertheless"


def test_without_shared_memory(monkeypatch, tmp_path):
    def full(self):
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    text = SharedText()
    text.text = "a folder"
    assert text.text == "a folder"
    assert in_a_loop(tmp_path, Net(), images(), {}).scalars["relevance/samples"] == N
