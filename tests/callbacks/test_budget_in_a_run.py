"""A share of the time, in runs so short that evaluations take most of it."""

import itertools

import pytest
import torch
from pytorch_lightning.callbacks import EarlyStopping
from setting import loader, messages, module, monitor, trainer

from lrptrain.loggers import read_events

FOCUS = "relevance/label/energy_pointing_game"


def fit(folder, *callbacks, **options):
    runner = trainer(folder, *callbacks, **options)
    torch.manual_seed(1)
    trained = module(class_names=["a", "b", "c"])
    runner.fit(trained, loader(), loader())
    return trained


def epochs(watching):
    return [event["epoch"] for event in read_events(watching.folder)]


def test_the_first_validation_and_the_final_weights_are_evaluated(tmp_path):
    with messages() as lines:
        watching = monitor(budget=0.05, on_error="raise", max_samples=20)
        trained = fit(tmp_path / "a", watching, max_epochs=4)
    assert epochs(watching) == [0, 3]
    assert len([line for line in lines if "the first evaluation took" in line and "budget of 5%" in line]) == 1
    assert [line for line in lines if "with 20 annotated samples all classes together are flagged from" in line]
    assert all(part.training for part in trained.modules())
    always = monitor(budget=None, on_error="raise", max_samples=20)
    other = fit(tmp_path / "b", always, max_epochs=4)
    assert epochs(always) == [0, 1, 2, 3]
    weights = other.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in trained.state_dict().items())
    last = read_events(always.folder)[-1]
    found = read_events(watching.folder)[-1]
    assert found["step"] == last["step"]
    for key in (FOCUS, "relevance/accuracy", "relevance/samples"):
        assert found["scalars"][key] == last["scalars"][key]


@pytest.mark.parametrize("decides", [{"fail_on": "confirmed"}, {}])
def test_where_something_decides_by_the_values_each_validation_is_evaluated(decides, tmp_path):
    watching = monitor(budget=0.05, on_error="raise", **decides)
    stopping = [] if decides else [EarlyStopping(FOCUS, mode="max", patience=9)]
    fit(tmp_path, *stopping, watching, max_epochs=3)
    assert epochs(watching) == [0, 1, 2]


def test_a_smaller_sample_is_a_part_of_the_whole_one_with_as_even_classes(tmp_path):
    whole = monitor(max_samples=20, budget=None, on_error="raise")
    fit(tmp_path, whole, max_epochs=1)
    sample = whole.core.reader.sample
    sizes = [[each.sample_id for each in sample.first(count)] for count in range(21)]
    assert [len(ids) for ids in sizes] == list(range(21))
    assert all(set(smaller) < set(larger) for smaller, larger in itertools.pairwise(sizes))
    labels = [each.label for each in sample.first(9)]
    assert [labels.count(label) for label in range(3)] == [3, 3, 3]


def test_a_budget_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match="budget must be a share between 0 and 1"):
        monitor(budget=5)
