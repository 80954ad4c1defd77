"""When a monitor evaluates, and what it reports of its time."""

import pytest
import torch
from torch import nn

import lrptrain
from lrptrain.monitor.budget import EvaluationSize
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.planner import Clock, Planner
from lrptrain.trainers.context import Moment, Output, TrainingContext

NET = nn.Linear(2, 2)


def planner(said=None, **options):
    run = lrptrain.Run(every_n_epochs=options.pop("every_n_epochs", 1))
    made = Planner(MonitorConfig(run=run, max_samples=64, **options), (said if said is not None else []).append)
    made.reset()
    made.fit_to(64)
    return made


def context(epoch, step=0):
    moment, output = Moment(epoch, step), Output(".")
    return TrainingContext(model=NET, module=NET, device=torch.device("cpu"), moment=moment, output=output)


@pytest.mark.parametrize(
    ("last", "due"), [(None, [0, 1, 2, 3, 4]), (0, [0, 3, 4]), (1, [0, 1, 4]), (2, [0, 1, 2]), (4, [0, 1, 2, 3, 4])]
)
def test_an_epoch_is_due_once_so_many_have_passed(last, due):
    """The last epoch again is another validation within it, and an earlier one a new start."""
    plans = planner(every_n_epochs=3)
    plans.evaluated_epoch = last
    assert [epoch for epoch in range(5) if plans.is_due(epoch)] == due


def test_it_plans_with_no_more_samples_than_there_are():
    plans = planner(budget=0.5)
    plans.fit_to(20)
    assert plans.in_full.samples == plans.size.samples == plans.budget.most.samples == 20
    plans.fit_to(0)
    assert plans.in_full.samples == 1


def test_the_subject_of_an_evaluation_names_its_weights():
    plans = planner()
    first = plans.validation_of(NET, context(3, 10))
    plans.weights.evaluated = plans.weights.tried = (first, 64)
    assert plans.subject == "epoch 3 that was not kept"
    plans.weights.kept = first
    assert plans.subject == "epoch 3"
    plans.validated = (4, 12)
    assert plans.subject == "the checkpoint that is kept (epoch 3)"
    plans.weights.moments.clear()
    assert plans.subject == "the checkpoint that is kept"
    plans.weights.kept = "others"
    assert plans.subject == "weights that were not kept"


def test_kept_weights_are_evaluated_unless_the_last_evaluation_was_of_them_with_as_many_samples():
    plans = planner()
    assert plans.plan_kept("a") == plans.in_full
    plans.weights.tried = ("a", 64)
    assert plans.plan_kept("a") is None
    plans.weights.tried = ("a", 32)
    assert plans.plan_kept("a") == plans.in_full


def test_what_an_evaluation_takes_is_reported_once_where_all_took_more_than_their_share():
    plans = planner(budget=0.05)
    plans.clock.resume(300.0)
    plans.budget.note(plans.size, 19.0)
    plans.budget.spent = 14.0
    assert plans.cost == ""
    plans.budget.spent = 20.0
    assert plans.cost == (
        "One evaluation takes about 19 s, and this run lasted 300 s: RelevanceMonitor(max_samples=16) makes it faster."
    )
    plans.size = EvaluationSize(16, 4, 0)
    assert "RelevanceMonitor(cues=None) makes it faster" in plans.cost
    assert planner().cost == ""


def test_the_clock_stands_still_between_two_fits_and_goes_on_from_a_checkpoint():
    clock = Clock()
    assert clock.elapsed == 0
    clock.resume(100.0)
    clock.start()
    assert clock.elapsed >= 100.0
    clock.stop()
    assert clock.elapsed == clock.elapsed
