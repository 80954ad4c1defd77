import numpy as np
import pytest
from scipy import stats

from lrptrain.dashboard.intervals import bootstrap_interval, wilson_interval


def test_an_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.beta(2, 5, 40), 0.9) for _ in range(200)]
    covered = np.mean([low <= 2 / 7 <= high for _, low, high in intervals])
    # The standard error of a share of 0.9 in 200 is 0.02, and the interval of 40 values is slightly narrow.
    assert 0.82 < covered < 0.96


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e100])
def test_it_is_the_same_in_any_unit(scale):
    values = np.array([0.0, 0.1, 0.3, 0.35, 0.9])
    expected = np.array(bootstrap_interval(values, 0.95))
    assert expected[1] < expected[0] < expected[2]
    np.testing.assert_allclose(
        bootstrap_interval(values * scale, 0.95), expected * scale, rtol=0.05
    )  # ties of resamples


def test_it_is_the_same_each_time_and_wider_the_surer_it_is():
    values = np.random.default_rng(0).normal(size=30)
    _, low, high = bootstrap_interval(values, 0.8)
    assert bootstrap_interval(values, 0.8) == (values.mean(), low, high)
    _, lower, higher = bootstrap_interval(values, 0.99)
    assert lower < low < high < higher


def test_what_does_not_vary_has_no_width_and_a_single_value_no_interval():
    assert bootstrap_interval(np.full(7, 0.1), 0.95) == pytest.approx((0.1, 0.1, 0.1))
    assert bootstrap_interval(np.zeros(2), 0.95) == (0, 0, 0)
    assert bootstrap_interval(np.array([0.3]), 0.95) == pytest.approx((0.3, np.nan, np.nan), nan_ok=True)


@pytest.mark.parametrize(("right", "count"), [(0, 5), (7, 10), (10, 10)])
def test_a_share_has_wilsons_interval(right, count):
    z, share = stats.norm.ppf(0.975), right / count
    middle, half = share + z**2 / 2 / count, z * np.sqrt(share * (1 - share) / count + z**2 / 4 / count**2)
    expected = [share, *(np.array([middle - half, middle + half]) / (1 + z**2 / count))]
    np.testing.assert_allclose(wilson_interval(right, count, 0.95), expected, atol=1e-12)
