"""The planner in simulated runs: time goes by as it is told to."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lrptrain.monitor.budget import SHORT, SMALLEST, Budget, EvaluationSize, sizes_within

FULL = EvaluationSize(128, 16, 5)
LARGE = EvaluationSize(32, 0, 0)
SMALL = EvaluationSize(16, 0, 0)  # the smallest part of it that is planned with
SMALL_WITH_PICTURES = EvaluationSize(16, 4, 0)  # the smallest part of the full one
ALL_SAMPLES = EvaluationSize(128, 4, 0)  # the cheapest evaluation of all samples


@dataclass
class Run:
    """What a simulated run has made."""

    budget: Budget
    elapsed: float = 0.0
    evaluated: list[tuple[int, EvaluationSize]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    first: float = 0.0
    forced: float = 0.0

    def evaluate(self, epoch: int, size: EvaluationSize, seconds: float) -> None:
        self.elapsed += seconds
        self.budget.note(size, seconds)
        self.budget.spent += seconds
        self.evaluated.append((epoch, size))
        self.first = self.first or seconds

    def share_but_for_the_ends(self) -> float:
        """Without the first evaluation, and without that of the kept checkpoint where its time was not there."""
        others = self.first + self.forced
        return (self.budget.spent - others) / (self.elapsed - others)


def simulate(
    epochs: int,
    epoch_seconds: float,
    cost: Callable[[EvaluationSize, int], float],
    budget: Budget | None = None,
    has_known_end: bool = False,
):
    run = Run(budget or Budget(0.05, FULL))
    for epoch in range(epochs):
        run.elapsed += epoch_seconds
        size = run.budget.plan(run.elapsed, (epoch + 1) / epochs if has_known_end else None)
        if size is not None:
            run.evaluate(epoch, size, cost(size, epoch))
        run.shares.append(run.budget.spent / run.elapsed)
    if not run.evaluated or run.evaluated[-1][0] != epochs - 1 or run.evaluated[-1][1].samples < FULL.samples:
        last = run.budget.plan_kept(run.elapsed)
        allowed = max(run.budget.share * run.elapsed, SHORT)
        paid = run.budget.spent + run.budget.cost_of(last) <= allowed
        assert paid or last == (ALL_SAMPLES if run.budget.in_every_validation else SMALL_WITH_PICTURES)
        run.forced = 0.0 if paid else cost(last, epochs - 1)
        run.evaluate(epochs - 1, last, cost(last, epochs - 1))
    return run


def steady(seconds: float = 0.25, fixed: float = 0.5):
    """A training sample takes 0.1 seconds, a monitored one 0.25."""
    return lambda size, epoch: fixed + seconds * size.work


RUNS = {
    "1,000 images": (30, 100.0, steady()),
    "50,000 images": (10, 5000.0, steady()),
    "slow pictures": (30, 100.0, lambda size, _: 0.25 * size.samples + 5.0 * size.drawn),
    "evaluations that become twice as slow": (40, 100.0, lambda size, epoch: 0.25 * size.work * (1 + (epoch > 9))),
    "a slow file system": (40, 100.0, steady(fixed=20.0)),
    "tiny epochs": (200, 1.0, steady()),
}


@pytest.mark.parametrize(("epochs", "seconds", "cost"), RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("known", [None, 0.25, 0.5, 0.125])
def test_the_share_is_kept(epochs, seconds, cost, known):
    """Also if what is foreseen before the first evaluation is wrong by a factor of two."""
    run = simulate(epochs, seconds, cost, Budget(0.05, FULL, seconds_per_sample=known))
    assert run.evaluated[0][0] == 0
    assert run.evaluated[-1][0] == epochs - 1
    assert run.share_but_for_the_ends() <= 0.05 * 1.1
    if run.first <= 0.05 * seconds:
        assert max(run.shares) <= 0.05 * 1.1
    if not run.forced:
        assert run.budget.spent / run.elapsed <= 0.05 * 1.1


def test_a_short_run_has_a_smaller_sample_and_few_pictures():
    run = simulate(30, 100.0, steady())
    sizes = {size for _, size in run.evaluated[1:-1]}
    assert len(sizes) <= 2
    assert all(SMALLEST <= size.samples < 128 and size.drawn == 4 for size in sizes)
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(run.evaluated[1:-1])]
    assert max(gaps) <= 5
    assert run.budget.spent / run.elapsed > 0.025  # what is allowed is used


@pytest.mark.parametrize("samples", [1, 20, 40, 120, 128])
@pytest.mark.parametrize("seconds", [0.01, 1.0, 100.0, 10_000.0])
def test_the_checkpoint_that_is_kept_takes_the_share_or_ten_seconds_or_has_the_smallest_sample(samples, seconds):
    budget = Budget(0.05, EvaluationSize(samples, 16, 5), costs={EvaluationSize(16, 4, 0): 4.0})
    budget.plan(seconds, 1 / 3)
    last = budget.plan(3 * seconds, 1.0)
    assert last is not None
    assert last == budget.plan_kept(3 * seconds)
    allowed = max(0.05 * 3 * seconds, 10.0)
    larger = [each for each in sizes_within(budget.most) if each.work > last.work]
    assert 2 * budget.cost_of(last) <= allowed or last.samples == min(samples, 16)
    assert all(2 * budget.cost_of(each) > allowed for each in larger if each.samples > 16)


def test_what_was_spent_before_is_part_of_the_ten_seconds():
    budget = Budget(0.05, FULL, costs={ALL_SAMPLES: 9.0, EvaluationSize(64, 4, 0): 6.0}, evaluations=1)
    assert budget.plan_kept(1.0).samples == 128
    budget.spent = 3.0
    assert budget.plan_kept(1.0).samples == 64
    assert Budget(0.05, FULL).plan_kept(1.0).samples == 16  # nothing is known of what it takes


def test_where_something_decides_by_the_values_the_checkpoint_that_is_kept_has_all_samples():
    assert Budget(0.05, FULL, costs={SMALL: 9.0}, in_every_validation=True).plan_kept(1.0) == ALL_SAMPLES


def test_the_last_validation_is_one_of_many_where_other_weights_are_kept():
    kept, others = (Budget(0.05, FULL, seconds_per_sample=0.25) for _ in range(2))
    assert kept.plan(10.0, 1.0, keeps_last=True) == SMALL_WITH_PICTURES
    kept.note(SMALL_WITH_PICTURES, 2.0)  # so that 32 take 3.9 seconds, of which twice as much is set aside
    assert kept.plan(10.0, 1.0, keeps_last=True) == EvaluationSize(32, 4, 0)
    assert others.plan(10.0, 1.0, keeps_last=False) is None


@pytest.mark.parametrize("seconds", [3.0, 10.0, 30.0, 100.0, 1000.0])
def test_a_run_with_a_known_end_keeps_the_share_with_its_ends_where_it_pays_for_them(seconds):
    cost = steady()
    budget = Budget(0.05, FULL, seconds_per_sample=0.25)
    run = simulate(10, seconds, cost, budget, has_known_end=True)
    assert run.evaluated[-1][0] == 9
    smallest = cost(SMALL_WITH_PICTURES, 0)
    if smallest + cost(ALL_SAMPLES, 9) <= 0.05 * run.elapsed:
        assert budget.spent / run.elapsed <= 0.05 * 1.1
    # Two of the smallest evaluations take 9.5 seconds: as soon as the run pays for them, there is a first look.
    assert (run.evaluated[0][0] == 0) == (2 * smallest <= 0.05 * 10 * seconds)


def test_the_kept_weights_have_as_many_pictures_as_the_run_pays_for():
    run = simulate(10, 32.8, steady(), Budget(0.05, FULL, seconds_per_sample=0.25), has_known_end=True)
    assert run.evaluated[-1] == (9, SMALL_WITH_PICTURES)
    longer = simulate(10, 200.0, steady(), Budget(0.05, FULL, seconds_per_sample=0.25), has_known_end=True)
    assert longer.evaluated[-1] == (9, FULL)
    unknown = simulate(10, 32.8, steady(), has_known_end=True)
    assert unknown.evaluated[0][0] == 0  # nothing was foreseen: the first evaluation measures


def test_what_decides_by_the_values_does_not_wait_for_the_end():
    for_each = Budget(0.05, FULL, seconds_per_sample=0.25, in_every_validation=True)
    assert for_each.plan(1.0, 0.1) == SMALL_WITH_PICTURES
    in_full = Budget(0.05, FULL, seconds_per_sample=0.25, in_full=True)
    assert in_full.plan(1.0, 0.1) == FULL


def test_where_something_decides_by_the_values_each_validation_is_evaluated_by_a_smaller_sample():
    run = simulate(10, 100.0, steady(), Budget(0.05, FULL, in_every_validation=True))
    assert [epoch for epoch, _ in run.evaluated] == [*range(10), 9]
    assert {size.samples for _, size in run.evaluated[:-1]} == {SMALLEST}
    long = simulate(10, 5000.0, steady(), Budget(0.05, FULL, in_every_validation=True, seconds_per_sample=0.25))
    assert {size for _, size in long.evaluated[1:]} == {FULL}


def test_a_size_that_is_nearly_right_is_not_changed():
    """Costs that vary by a third from epoch to epoch make no sample larger and smaller in turn."""
    run = simulate(200, 100.0, lambda size, epoch: 0.25 * size.work * (1 + (epoch % 3) / 6))
    sizes = [size for _, size in run.evaluated]
    assert sum(one != other for one, other in itertools.pairwise(sizes)) <= 2


def test_epochs_that_become_longer_allow_a_larger_sample():
    budget = Budget(0.05, FULL)
    run = simulate(20, 100.0, steady(), budget)
    small = run.evaluated[-2][1]
    for epoch in range(20, 60):
        run.elapsed += 3000.0
        size = budget.plan(run.elapsed)
        if size is not None:
            run.evaluate(epoch, size, steady()(size, epoch))
    assert small.work < run.evaluated[-1][1].work == FULL.work


def test_pictures_are_saved_before_samples_and_samples_nested():
    assert sizes_within(FULL) == [
        FULL,
        EvaluationSize(128, 4, 5),
        EvaluationSize(128, 4, 0),
        EvaluationSize(64, 4, 0),
        EvaluationSize(32, 4, 0),
        EvaluationSize(16, 4, 0),
    ]
    assert sizes_within(EvaluationSize(10, 0, 0)) == [EvaluationSize(10, 0, 0)]
    assert sizes_within(EvaluationSize(20, 2, 0)) == [EvaluationSize(20, 2, 0), EvaluationSize(16, 2, 0)]


def test_a_resumed_run_plans_as_the_one_that_was_not_stopped():
    run = simulate(7, 100.0, steady())
    state = json.loads(json.dumps(run.budget.state_dict()))
    resumed = Budget(0.05, FULL)
    resumed.load_state_dict(state)
    plans = [[each.plan(run.elapsed + 100.0 * step) for step in range(30)] for each in (run.budget, resumed)]
    assert plans[0] == plans[1]
    assert any(plans[0])


def test_work_is_counted_in_samples():
    """A picture is a quarter of a sample, and so is each of its maps of further classes."""
    assert EvaluationSize(128, 0, 5).work == 128
    assert EvaluationSize(128, 16, 0).work == 128 + 16 / 4
    assert FULL.work == 128 + 16 / 4 + 16 * 5 / 4


def test_the_foreseen_cost_is_what_was_measured_or_follows_from_the_nearest_size():
    assert Budget(0.5, FULL).cost_of(FULL) == 0
    assert Budget(0.5, FULL, seconds_per_sample=2.0).cost_of(EvaluationSize(64, 0, 0)) == 128
    budget = Budget(0.5, FULL, seconds_per_sample=2.0)
    of_the_same_work = EvaluationSize(33, 0, 0), EvaluationSize(32, 4, 0)
    for size, seconds in zip((*of_the_same_work, EvaluationSize(132, 0, 0)), (10.0, 11.0, 20.0), strict=True):
        budget.note(size, seconds)
    assert [budget.cost_of(size) for size in of_the_same_work] == [10, 11]
    assert budget.cost_of(EvaluationSize(66, 0, 0)) == 20  # twice the work of the first
    assert budget.cost_of(EvaluationSize(100, 0, 0)) == pytest.approx(20 * 100 / 132)


def test_a_budget_is_exceeded_beyond_its_share_of_the_time():
    assert not Budget(0.5, FULL, spent=1.0).is_exceeded(2.0)
    assert Budget(0.5, FULL, spent=1.1).is_exceeded(2.0)
    assert Budget(0.5, FULL, spent=51.0).is_exceeded(100.0)
    assert not Budget(0.5, FULL, spent=50.0).is_exceeded(100.0)


@pytest.mark.parametrize(("elapsed", "spent", "is_due"), [(40.0, 0.0, True), (39.9, 0.0, False), (41.9, 1.0, False)])
def test_an_evaluation_is_due_once_it_and_one_more_are_paid_for(elapsed, spent, is_due):
    """Half of the time pays for 2 evaluations of 10 seconds each after 40 seconds."""
    budget = Budget(0.5, SMALL, spent=spent, evaluations=1, costs={SMALL: 10.0})
    assert budget.plan(elapsed) == (SMALL if is_due else None)


@pytest.mark.parametrize(("elapsed", "expected"), [(100.0, FULL), (99.9, ALL_SAMPLES), (1.0, EvaluationSize(16, 4, 0))])
def test_the_pictures_of_the_kept_weights_are_a_matter_of_the_budget(elapsed, expected):
    budget = Budget(0.5, FULL, size=SMALL, evaluations=1, costs={FULL: 50.0, EvaluationSize(128, 4, 5): 50.0})
    assert budget.plan_kept(elapsed) == expected
    assert budget.size == SMALL  # further validations, if there are any, are compared with the ones before


# Half of 100 seconds of training over 10 validations: 5 seconds are paid for by each, 20 by four of them.
SIZES = {
    "the large one in four validations": (None, {LARGE: 20.0, SMALL: 1.0}, {}, LARGE),
    "not the large one in more": (None, {LARGE: 20.1, SMALL: 1.0}, {}, SMALL),
    "the smallest one where none is": (None, {LARGE: 40.0, SMALL: 30.0}, {}, SMALL),
    "in each validation": (None, {LARGE: 5.0, SMALL: 1.0}, {"in_every_validation": True}, LARGE),
    "not in each": (None, {LARGE: 5.1, SMALL: 1.0}, {"in_every_validation": True}, SMALL),
    "a larger one that fits twice": (SMALL, {LARGE: 10.0, SMALL: 5.0}, {}, LARGE),
    "not a larger one that fits once": (SMALL, {LARGE: 10.1, SMALL: 5.0}, {}, SMALL),
    "the present one until it takes twice as long": (LARGE, {LARGE: 40.0, SMALL: 5.0}, {}, LARGE),
    "no longer": (LARGE, {LARGE: 40.1, SMALL: 5.0}, {}, SMALL),
    "at first what is paid for": (None, {LARGE: 5.0, SMALL: 1.0}, {"evaluations": 0}, LARGE),
    "at first no more": (LARGE, {LARGE: 5.1, SMALL: 1.0}, {"evaluations": 0}, SMALL),
    "then what is worth waiting for": (SMALL, {LARGE: 20.0, SMALL: 1.0}, {"evaluations": 1}, LARGE),
    "and nothing else": (LARGE, {LARGE: 20.1, SMALL: 1.0}, {"evaluations": 1}, SMALL),
    "a size of other options is none": (EvaluationSize(128, 0, 0), {LARGE: 5.0, SMALL: 5.0}, {}, LARGE),
}


@pytest.mark.parametrize(("present", "costs", "options", "expected"), SIZES.values(), ids=SIZES)
def test_how_much_is_evaluated(present, costs, options, expected):
    state = {"evaluations": 2, "spent": 10.0, "validations": 9, "size": present, "costs": costs, **options}
    budget = Budget(0.5, LARGE, **state)
    budget.plan(110.0)
    assert budget.size == expected
