"""Intervals over seeds and samples against numbers made by hand, and against how often they should hold."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.intervals import Estimate, compared, estimate, holm, paired, signed, starred

# 2000 resamples: the relative error of a standard error is 1 / sqrt(2 * 2000) = 1.6 %; four times that.
BY_CHANCE = 0.065


def test_a_single_run_has_the_t_interval_of_its_samples():
    # Mean 3, variance 10 / 4: standard error sqrt(2.5 / 5); t of 4 degrees of freedom at 97.5 %: 2.7764.
    found = estimate([[1, 2, 3, 4, 5]], same_samples=True)
    assert found.mean == 3
    assert found.half == pytest.approx(2.7764 * math.sqrt(0.5), rel=BY_CHANCE)
    # t = 3 / 0.7071 = 4.243, two-sided p = 0.01324 (the density of t falls with its fifth power).
    assert found.p_value == pytest.approx(0.01324, rel=5 * BY_CHANCE)


def test_seeds_alone_have_the_t_interval_over_seeds():
    # Mean 2, variance 1: standard error sqrt(1 / 3); t of 2 degrees of freedom: 4.3027.
    by_seed = estimate([[1], [2], [3]], same_samples=False)
    assert by_seed.half == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    samples_alike = estimate([[1] * 9, [2] * 9, [3] * 9], same_samples=True)
    assert samples_alike.half == pytest.approx(by_seed.half, rel=BY_CHANCE)


def test_the_luck_of_the_same_samples_is_shared_by_all_runs_and_that_of_others_is_not():
    # Runs that agree: three times the same five samples say no more than once; fifteen others say more.
    run = [1, 2, 3, 4, 5]
    shared = estimate([run] * 3, same_samples=True)
    assert shared.half == pytest.approx(2.7764 * math.sqrt(0.5), rel=BY_CHANCE)
    # Of others the standard error is sqrt(0.5 / 3), times sqrt(2) as seeds are drawn, too; t of 12: 2.1788. By hand:
    # the stretched weights of three seeds have squares that add up to 2 / 3 in the mean.
    others = estimate([run] * 3, same_samples=False)
    assert others.half == pytest.approx(2.1788 * math.sqrt(0.5 * 2 / 3), rel=BY_CHANCE)


def test_a_statistic_of_rows_is_of_all_samples_together():
    # Hits and tries of two images: 1 of 2 and 8 of 10 make 9 of 12, not the mean of 0.5 and 0.8.
    found = estimate([[[1, 2], [8, 10]]], same_samples=True, statistic=lambda totals: totals[:, 0] / totals[:, 1])
    assert found.mean == pytest.approx(9 / 12)


def test_samples_that_are_nan_are_left_out():
    nan = float("nan")
    assert estimate([[1, nan, 3], [5, 7, 9]], same_samples=True).mean == 4.5  # (1 + 3) / 2 and (5 + 9) / 2
    assert estimate([[1, nan, 3], [5, 7, 9]], same_samples=False).mean == 4.5  # (1 + 3) / 2 and 7


def test_equal_numbers_are_sure_and_one_number_says_nothing():
    assert estimate([[0.1] * 7] * 3, same_samples=True)[1:] == (0, 0)
    assert estimate([[0.0] * 7] * 3, same_samples=True)[1:] == (0, 1)
    assert all(math.isnan(value) for value in estimate([[0.3]], same_samples=True)[1:])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="equally many"):
        estimate([[1, 2], [1, 2, 3]], same_samples=True)
    with pytest.raises(ValueError, match="no mean"):
        estimate([[float("nan")]], same_samples=False)
    with pytest.raises(ValueError, match="same samples"):
        paired([[1, 2]], [[1, 2, 3]])


def test_holm_of_a_textbook_example():
    # 4 * 0.005, 3 * 0.01, 2 * 0.03, and the last, 1 * 0.04, kept from falling below the one before.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.4]), [0.9, 0.8])


def test_stars_are_corrected_for_their_number():
    # Holm by hand: 0.01 * 3 = 0.03, then 0.02 * 2 = 0.04, then 0.2.
    p_values = {"a": 0.02, "b": 0.01, "c": 0.2, "untested": float("nan")}
    assert starred({key: Estimate(1, 1, p) for key, p in p_values.items() if key != "untested"}) == {"a", "b"}
    # One more test: 0.01 * 4 holds, 0.02 * 3 = 0.06 does not.
    assert starred({key: Estimate(1, 1, p) for key, p in p_values.items()}) == {"b"}


@pytest.mark.parametrize(
    ("seeds", "of_seeds", "of_samples", "same"),
    [(3, 1, 0, True), (3, 0, 1, True), (2, 0.2, 1, True), (3, 0.1, 0, False)],
)
def test_intervals_hold_as_often_as_they_say(seeds, of_seeds, of_samples, same):
    # 300 experiments whose mean is 0: with a true chance of 0.95, fewer than 274 hits have a probability of 0.3 %.
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        runs = generator.normal(size=(seeds, 30)) + of_seeds * generator.normal(size=(seeds, 1))
        found = estimate(list(runs + of_samples * generator.normal(size=(1, 30))), same)
        hits += abs(found.mean) <= found.half
    assert hits >= 274


def test_differences_of_a_column_are_paired_by_run_and_starred_as_one_family():
    """Seeds differ by 10 and two methods by 1, which only pairs show; the third differs by chance."""
    seeds = np.array([[0.0], [10.0], [20.0]])
    noise = np.array([[0.01], [-0.01], [0.02]])
    rows = {"best": seeds, "worse": seeds - 1 + noise, "unlike": seeds + 2 * noise}
    cells = compared(rows, "best", same_samples=False, digits=2)
    assert list(cells) == ["best", "worse", "unlike"]
    assert cells["best"] == ""
    difference = (-1 + noise).ravel()
    half = stats.t.ppf(0.975, 2) * difference.std(ddof=1) / np.sqrt(3)
    assert cells["worse"] == f"{difference.mean():+.2f} ± {half:.2f} *"
    assert not cells["unlike"].endswith("*")
    # Among enough that nothing tells from chance, the same difference is sure no more.
    p_value = stats.ttest_1samp(difference, 0).pvalue
    many = {number: estimate(list(noise), same_samples=False) for number in range(int(0.05 / p_value) + 1)}
    assert not signed({"worse": estimate(list(difference[:, None]), same_samples=False), **many})["worse"].endswith("*")
