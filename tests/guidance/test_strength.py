"""What scales a guidance, and when gradients are compared."""

import math

import pytest

from lrptrain.guidance.strength import BOUND_EVERY_N_BATCHES, IDLE_STEPS, Strength, bounded_factor


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ((1.0, 5.0, 0.0), 0.1),  # half of the task's
        ((1.0, 5.0, 1.0), 0.1),  # of a model that guesses it is the same
        ((1.0, 5.0, 4.0), 0.6),  # what the task would gain
        ((0.1, 5.0, 9.0), 1.0),
        ((1.0, 5.0, math.nan), 0.1),
        ((0.0, 5.0, 4.0), None),
        ((1.0, math.inf, 4.0), None),
    ],
)
def test_the_bound_by_hand(norms, expected):
    assert bounded_factor(None, *norms) == (expected if expected is None else pytest.approx(expected))
    assert bounded_factor(0.01, *norms) == pytest.approx(0.01 if expected is None else 0.02)


def test_a_bounded_guidance_is_compared_until_it_has_a_factor_and_then_rarely():
    strength = Strength(bounded=True, compare_every_n_batches=0)
    assert strength() == 0
    assert strength.compares(3)
    strength.update(1.0, 5.0)
    assert strength() == pytest.approx(0.1)
    assert [batch for batch in range(31) if strength.compares(batch)] == [*range(0, 31, BOUND_EVERY_N_BATCHES)]
    resumed = Strength(bounded=True, compare_every_n_batches=0)
    resumed.load_state_dict(strength.state_dict())
    assert resumed() == strength()
    strength.start_over()
    assert strength() == 0


def test_a_weight_of_the_users_own_is_applied_as_it_is():
    strength = Strength(bounded=False, compare_every_n_batches=4)
    strength.update(1.0, 5.0)
    assert strength() == 1
    assert [batch for batch in range(9) if strength.compares(batch)] == [0, 4, 8]
    assert [batch for batch in range(9) if strength.measures_swaps(batch)] == [0, 4, 8]


def test_a_guidance_without_a_gradient_is_refused_after_some_steps():
    strength = Strength(bounded=False, compare_every_n_batches=50)
    strength.check_gradient(0.0, 2, excused=False)
    assert strength.compares(1)  # until it has one, or is refused
    strength.check_gradient(0.0, 1 + IDLE_STEPS, excused=False)
    strength.check_gradient(0.0, 2 + IDLE_STEPS, excused=True)
    with pytest.raises(ValueError, match=f"no gradient in its first {IDLE_STEPS} steps"):
        strength.check_gradient(0.0, 2 + IDLE_STEPS, excused=False)
    strength.check_gradient(1.0, 2 + IDLE_STEPS, excused=False)
    strength.check_gradient(0.0, 99, excused=False)  # it has had one
    assert not strength.compares(1)
