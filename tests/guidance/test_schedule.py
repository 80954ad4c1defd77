"""Warm-up, decay, and the ratio that makes two gradients equally long."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrptrain.guidance.schedule import Schedule, running_ratio


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1, 1, 1, 1, 1]),
        (Schedule(2), [0, 0.5, 1, 1, 1]),
        (Schedule(0, "linear"), [1, 0.75, 0.5, 0.25, 0]),
        (Schedule(2, "linear"), [0, 0.5, 1, 0.5, 0]),
        (Schedule(0, "cosine"), [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]),
        (Schedule(9, "cosine"), [0, 1 / 9, 2 / 9, 3 / 9, 4 / 9]),
    ],
)
def test_by_hand(schedule, expected):
    assert [schedule(step, 4) for step in range(5)] == pytest.approx(expected)
    assert schedule.needs_end == (schedule.decay != "none")


@given(st.integers(0, 50), st.sampled_from(["none", "linear", "cosine"]), st.integers(0, 200), st.integers(1, 100))
@settings(deadline=None)
def test_a_share_of_the_weight_that_rises_and_then_falls(warmup, decay, step, total):
    schedule = Schedule(warmup, decay)
    now, after = schedule(step, total), schedule(step + 1, total)
    assert 0 <= now <= 1
    assert after >= now if step < warmup else after <= now


@pytest.mark.parametrize("total", [math.inf, -1])
def test_an_endless_run(total):
    assert Schedule(2)(7, total) == 1


def test_wrong_schedules():
    with pytest.raises(ValueError, match="warmup_steps must not be negative, got -1"):
        Schedule(-1)
    with pytest.raises(ValueError, match="decay must be 'none', 'linear' or 'cosine', got 'step'"):
        Schedule(0, "step")  # type: ignore[arg-type]


def test_the_running_ratio():
    assert running_ratio(None, 6.0, 3.0) == 2
    assert running_ratio(4.0, 6.0, 3.0) == pytest.approx(4**0.9 * 2**0.1)
    assert (running_ratio(1.0, 1.0, 1e-7) or 0) == pytest.approx(
        10**0.7
    )  # one batch that is well guided already does not set the pace


@pytest.mark.parametrize("norms", [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)])
def test_a_ratio_that_says_nothing_is_passed_over(norms):
    assert running_ratio(None, *norms) is None
    assert running_ratio(3.0, *norms) == 3
