"""What a sample can show: by the test itself, on drawn samples whose mean lies as far below as is said."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import ExplainedSample
from lrptrain.findings.statistics import fewest_for_a_flag, least_shortfall, sign_flip_test
from lrptrain.monitor.power import found_by, power_line


@pytest.mark.parametrize(("tests", "fewest"), [(1, 5), (3, 6), (11, 8)])
def test_fewer_samples_are_never_flagged_and_as_many_can_be(tests, fewest):
    assert fewest_for_a_flag(tests) == fewest
    assert tests * sign_flip_test(-np.ones(fewest), 0.0) <= 0.05 < tests * sign_flip_test(-np.ones(fewest - 1), 0.0)
    assert math.isinf(least_shortfall(fewest - 1, 0.1, tests))


def test_a_mean_so_far_below_is_flagged_in_four_of_five_draws():
    rng = np.random.default_rng(0)
    shortfall = least_shortfall(32, 0.2, tests=11)
    draws = rng.normal(-shortfall, 0.2, (200, 32))
    flagged = np.mean([11 * sign_flip_test(draw, 0.0, resamples=999) <= 0.05 for draw in draws])
    assert 0.68 < flagged < 0.92  # four standard errors of a share of 0.8 in 200 draws are 0.11


def scored(label: int, share: float) -> ExplainedSample:
    maps = {"label": torch.ones(4)}
    values = {"label/energy_pointing_game": share}
    return ExplainedSample(Sample(0, label, {}), 0, np.array([1.0, 0.0]), maps, (2, 2), 2, 0.25, values)


def test_the_line_says_from_which_shortfall_on():
    some = [scored(i % 2, 0.25 + 0.1 * (-1) ** (i // 2)) for i in range(16)]
    single = 100 * least_shortfall(8, 0.1 * math.sqrt(16 / 15), 3)
    both = 100 * least_shortfall(16, 0.1 * math.sqrt(16 / 15), 3)
    assert power_line(some, "chance", 0.95) == (
        f"with 16 annotated samples all classes together are flagged from {both:.0f} points below the annotated area, "
        f"a class of 8 from {single:.0f} points"
    )
    assert power_line(some[:4], 0.5, 0.95) == (
        "with 4 annotated samples all classes together are never flagged; a class needs 6 samples to be flagged, and "
        "the smallest has 2"
    )
    assert power_line([scored(0, math.nan)] * 3, "chance", 0.95) == ""


@pytest.mark.parametrize(
    ("classes", "spread", "whole", "single"),
    [
        (1, 0.1, "their class is flagged from 5 points below 50%", ""),
        (2, 0.1, "all classes together are flagged from 5 points below 50%", ", a class of 16 from 8 points"),
        (
            10,
            0.1,
            "all classes together are flagged from 6 points below 50%",
            "; a class needs 8 samples to be flagged, and the smallest has 3",
        ),
        (
            1000,
            0.1,
            "all classes together are flagged from 7 points below 50%",
            "; a class needs 10 samples to be flagged, and the smallest has 1",
        ),
        (2, 0.017, "all classes together are flagged from 1 point below 50%", ", a class of 16 from 1 point"),
        (1, 1e-3, "their class is flagged from less than a point below 50%", ""),
    ],
)
def test_the_line_reads_well(classes, spread, whole, single):
    alternating = [scored(i % classes, 0.4 + spread * (-1) ** (i // 2)) for i in range(32)]
    assert power_line(alternating, 0.5, 0.95) == f"with 32 annotated samples {whole}{single}"


def test_answers_at_chance_tell_nothing():
    # The answer is class 0 throughout: right for all of the first, for half of the second.
    assert not found_by([scored(i % 2, 0.5) for i in range(32)], "chance", 0.95).tells
    assert found_by([scored(0, 0.5 + i / 100) for i in range(32)], 0.5, 0.95).text.startswith(
        "What could have been found"
    )


@pytest.mark.parametrize(("count", "said"), [(1, "1 sample is"), (4, "4 samples are")])
def test_of_too_few_samples_nothing_is_said_to_be_absent(count, said):
    shares = [scored(0, 0.5 + i / 100) for i in range(5)]
    power = found_by(shares[:count], "chance", 0.95)
    assert power == (False, f"That says nothing: {said} too few to find anything; 5 can be enough.")
    assert found_by(shares, "chance", 0.95).tells


def test_where_objects_lie_alike_it_is_said_that_more_was_asked_for():
    without = [replace(scored(i % 2, 0.5 + i / 100), values={}, predicted=i % 2) for i in range(32)]
    told = [found_by(without, "chance", 0.95, lie_alike=each) for each in (False, True)]
    assert all(power.tells for power in told)
    assert "only what surely is no part of them counted" not in told[0].text
    assert told[1].text.endswith("only what surely is no part of them counted.")
