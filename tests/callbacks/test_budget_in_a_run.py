"""A share of the time, in runs so short that evaluations take most of it."""

import re
from contextlib import suppress

import pytest
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from setting import data, loader, messages, module, monitor, trainer

from lrptrain.loggers import read_events
from lrptrain.monitor.judging import FindingError

FOCUS = "relevance/label/energy_pointing_game"


def fit(folder, *callbacks, **options):
    runner = trainer(folder, *callbacks, **options)
    torch.manual_seed(1)
    trained = module(class_names=["a", "b", "c"])
    runner.fit(trained, loader(), loader())
    return trained


def epochs(watching):
    return [event["epoch"] for event in read_events(watching.folder)]


class StopAfter(Callback):
    """Ends a run that has no end by itself."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch == self.epoch


def test_of_a_run_without_an_end_the_first_validation_and_the_final_weights_are_evaluated(tmp_path):
    with messages() as lines:
        watching = monitor(budget=0.05, on_error="raise")
        fit(tmp_path, watching, StopAfter(3), max_epochs=-1)
    assert epochs(watching) == [0, 3]
    assert len([line for line in lines if "this run lasted" in " ".join(line.split())]) == 1


@pytest.mark.parametrize(
    "end", [{"max_epochs": 4}, {"max_epochs": -1, "max_steps": 20}, {"max_epochs": -1, "max_time": {"hours": 9}}]
)
def test_of_a_run_too_short_for_two_the_final_weights_alone_are_evaluated(end, tmp_path):
    with messages() as lines:
        # A billionth of the time pays for no evaluation, of nine hours as of a second.
        watching = monitor(budget=1e-9, on_error="raise")
        trained = fit(tmp_path, watching, *([StopAfter(3)] if "max_time" in end else []), **end)
    assert epochs(watching) == [3]
    assert (FOCUS in trained.trainer.callback_metrics) == (
        "max_time" not in end
    )  # of which nobody knew that it was the last
    (end,) = (" ".join(line.split()) for line in lines if " ends: " in line)
    assert re.search(r"(?i)in epoch 3, on 8 samples.* One evaluation takes about \d+ s, and this run lasted \d+ s", end)


@pytest.mark.parametrize("decides", [{"fail_on": "relies"}, {}])
def test_where_something_decides_by_the_values_each_validation_is_evaluated(decides, tmp_path):
    watching = monitor(budget=0.05, on_error="raise", **decides)
    stopping = [] if decides else [EarlyStopping(FOCUS, mode="max", patience=9)]
    with suppress(FindingError):  # the gate of a model that has learned nothing does not pass
        fit(tmp_path, *stopping, watching, max_epochs=3)
    assert epochs(watching) == [0, 1, 2]


def test_the_score_of_a_class_that_something_decides_by_is_that_of_the_full_sample(tmp_path):
    watching = monitor(budget=1e-6, on_error="raise", max_samples=60)
    torch.manual_seed(1)
    trained = module(class_names=["a", "b", "c"])
    runner = trainer(tmp_path, watching, EarlyStopping(f"{FOCUS}_per_class/c", mode="max", patience=9), max_epochs=2)
    runner.fit(trained, loader(), loader(data(60)))
    sizes = [event["scalars"]["relevance/samples"] for event in read_events(watching.folder)]
    assert sizes == [60, 60]


def test_each_validation_is_evaluated_where_the_learning_rate_goes_by_a_value(tmp_path):
    watching = monitor(budget=0.05, on_error="raise")
    trained = module()

    def configure_optimizers():
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": FOCUS}}

    trained.configure_optimizers = configure_optimizers
    trainer(tmp_path, watching, max_epochs=3).fit(trained, loader(), loader())
    assert epochs(watching) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "moment"),
    [({"max_epochs": 5, "check_val_every_n_epoch": 2}, (4, 24)), ({"max_steps": 13, "max_epochs": None}, (2, 12))],
)
def test_the_final_weights_are_recorded_at_the_end_where_steps_followed_the_last_validation(options, moment, tmp_path):
    watching = monitor(budget=1e-6, on_error="raise")
    fit(tmp_path, watching, **options)
    last = read_events(watching.folder)[-1]
    assert (last["epoch"], last["step"]) == moment
