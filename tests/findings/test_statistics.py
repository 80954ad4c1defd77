import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from lrptrain.findings import bootstrap_interval, holm, max_test, sign_flip_test

shares = hnp.arrays(float, st.integers(2, 30), elements=st.floats(0, 1))
p_values = hnp.arrays(float, st.integers(0, 12), elements=st.floats(0, 1))

# Efron & Tibshirani 1993, table 2.1: survival of the treated mice in days.
MICE = np.array([94.0, 197, 16, 38, 99, 141, 23])


def test_interval_of_a_textbook_sample():
    mean, low, high = bootstrap_interval(MICE, confidence=0.9, resamples=20_000)
    assert mean == pytest.approx(86.857, abs=1e-3)
    # The standard error of the mean is 25.24 there (plug-in 23.36); BCa leans to the right on this skewed sample.
    assert 45 < low < 58
    assert 122 < high < 142
    assert high - mean > mean - low


def test_interval_covers_the_true_mean_as_often_as_it_claims():
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.beta(2, 5, 40), confidence=0.9, resamples=400) for _ in range(300)]
    covered = np.mean([low <= 2 / 7 <= high for _, low, high in intervals])
    assert covered == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("count", [15, 40, 256, 1500])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_interval_is_that_of_scipy(count, confidence):
    values = np.random.default_rng(count).exponential(size=count) ** 2
    # scipy draws the same resamples from the same generator. 1,500 values are more than are resampled at a time.
    rng = np.random.default_rng(0)
    expected = stats.bootstrap((values,), np.mean, confidence_level=confidence, n_resamples=2000, rng=rng, batch=200)
    low, high = expected.confidence_interval
    mean, *bounds = bootstrap_interval(values, confidence)
    assert mean == values.mean()
    np.testing.assert_allclose(bounds, (low, high), rtol=1e-12)


@pytest.mark.parametrize("count", [7, 15, 40])
def test_resamples_with_the_very_mean_of_the_sample_count_half(count):
    # Else rounding would say on which side of the mean they lie, and the interval would lean to one side.
    ones = (np.arange(count) % 3 == 0).astype(float)
    mean, low, high = bootstrap_interval(ones)
    np.testing.assert_allclose(bootstrap_interval(1 - ones), (1 - mean, 1 - high, 1 - low), atol=1e-12)


@given(shares)
@settings(deadline=None, max_examples=30)
def test_interval_lies_around_the_mean_and_within_the_values(values):
    mean, low, high = bootstrap_interval(values, resamples=200)
    slack = 1e-9
    assert values.min() - slack <= low <= mean + slack
    assert mean - slack <= high <= values.max() + slack


def test_interval_leaves_nan_out_and_is_repeatable():
    values = np.random.default_rng(1).random(20)
    assert bootstrap_interval(np.append(values, [np.nan, np.nan])) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, seed=1)


@pytest.mark.parametrize(("values", "mean"), [([], np.nan), ([np.nan], np.nan), ([0.4], 0.4), ([0.4, np.nan], 0.4)])
def test_fewer_than_two_values_have_no_interval(values, mean):
    result = bootstrap_interval(np.array(values, float))
    np.testing.assert_equal(tuple(result), (mean, np.nan, np.nan))


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_constant_values_have_a_point_as_interval(value):
    assert tuple(bootstrap_interval(np.full(7, value))) == pytest.approx((value, value, value))


def test_share_test_is_exact_for_few_values():
    # All five below: one of the 32 sign patterns is as low.
    assert sign_flip_test(np.array([0.1, 0.2, 0.15, 0.05, 0.12]), 0.5) == pytest.approx(1 / 32)
    assert sign_flip_test(np.array([0.9, 0.8, 0.85, 0.95, 0.88]), 0.5) == pytest.approx(1.0)


def test_share_test_agrees_with_the_t_test_on_a_normal_sample():
    differences = np.random.default_rng(2).normal(-0.2, 1, 60)
    expected = stats.ttest_1samp(differences, 0, alternative="less").pvalue
    assert 0.01 < expected < 0.5
    assert sign_flip_test(differences, 0.0) == pytest.approx(expected, abs=0.02)


def test_share_test_is_paired():
    chance = np.linspace(0.05, 0.95, 10)
    below = chance - 0.01
    assert sign_flip_test(below, chance) == pytest.approx(1 / 1024)
    assert sign_flip_test(below, chance.mean()) > 0.3


def test_share_test_needs_two_values():
    assert sign_flip_test(np.array([0.1, np.nan]), 0.5) == 1.0


def test_holm_of_a_textbook_example():
    # 4 * 0.005, 3 * 0.01, 2 * 0.03, and the last, 1 * 0.04, kept from falling below the one before.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


@given(p_values)
def test_holm_lies_between_the_raw_and_the_bonferroni_values(values):
    corrected = holm(values)
    assert np.all(corrected >= values)
    assert np.all(corrected <= np.minimum(values * len(values), 1) + 1e-12)
    assert np.all(np.diff(corrected[np.argsort(values, kind="stable")]) >= 0)


@given(p_values, st.randoms(use_true_random=False))
def test_holm_keeps_the_order_given(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    np.testing.assert_allclose(holm(values[order]), holm(values)[order])


@pytest.mark.parametrize("count", [2, 5, 12])
def test_the_sign_flip_test_is_that_of_scipy(count):
    values = np.random.default_rng(count).normal(-0.3, 1, count)
    scipys = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", alternative="less", n_resamples=np.inf
    )
    assert sign_flip_test(values, 0.0) == pytest.approx(scipys.pvalue, abs=1e-12)


def test_the_largest_of_many_places_is_corrected_for():
    differences = np.random.default_rng(0).normal(size=(40, 25))
    differences[:, 3] += 1
    found = max_test(differences)
    assert found.argmin() == 3
    assert found[3] < 0.02
    alone = np.array([sign_flip_test(-column, 0.0) for column in differences.T])
    assert (found >= alone - 1e-3).all()
    assert (found <= np.minimum(25 * alone, 1) + 0.02).all()  # never much stricter than Bonferroni's
    assert (max_test(differences[:1]) == 1).all()


def test_more_than_a_thousand_samples_can_be_tested():
    values = np.random.default_rng(0).normal(-0.2, 1.0, 1100)
    assert sign_flip_test(values, 0.0) == 1e-4  # none of 9999 patterns of signs comes near; the observed one counts
    assert max_test(-values[:, None])[0] == 1e-4
