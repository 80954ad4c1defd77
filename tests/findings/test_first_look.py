"""Which samples an intervention looks at first, and what that settles."""

import numpy as np
import pytest
from examples import finding

from lrptrain.findings import OVERALL, Scope
from lrptrain.findings.detectors.detail import RelianceOnDetail
from lrptrain.findings.first_look import FEW, HALF, OF_PROPERTY, QUARTER, UNMOVED, first_look, is_settled
from lrptrain.findings.statistics import sign_flip_test
from lrptrain.intervention import Region

COUNT = 144
ALL = np.arange(COUNT)
OUTSIDE = Region("outside")
CORNER = Region("patches", (3,))
# 64 values with a spread of 0.03: the 99 % interval of the mean reaches 0.0094 to either side, that of 99.9 % 0.012.
CLASS = Scope("class", "dog")
NOISE = np.linspace(-0.05, 0.05, HALF.least)


def settles(differences, kind="focus_outside_annotation", region=OUTSIDE, medium="text", scope=CLASS, **changed):
    settings = {"rows": COUNT, "tests": 1, "min_effect": 0.05, "confidence": 0.95} | changed
    return is_settled(finding(kind=kind, medium=medium, scope=scope), differences, region, **settings)


def test_the_first_look_is_a_random_half_and_never_few():
    assert len(first_look(ALL, COUNT, 0, OUTSIDE)) == COUNT // 2
    assert len(first_look(np.arange(100), COUNT, 0, OUTSIDE)) == HALF.least
    assert len(first_look(np.arange(HALF.least), COUNT, 0, OUTSIDE)) == HALF.least // 2
    assert len(first_look(np.arange(15), COUNT, 0, OUTSIDE)) == FEW
    few = ALL[:FEW]
    np.testing.assert_array_equal(first_look(few, COUNT, 0, OUTSIDE), few)
    once, again = first_look(ALL, COUNT, 0, OUTSIDE), first_look(ALL, COUNT, 0, OUTSIDE)
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, first_look(ALL, COUNT, 1, OUTSIDE))
    # Of other rows the same samples come first: those of both looks are all that one of them can have of the other's.
    odd = np.arange(10, COUNT)
    assert set(once) - set(range(10)) <= set(first_look(odd, COUNT, 0, OUTSIDE))


def test_a_place_is_looked_at_in_one_quarter_and_exchanged_in_another():
    removed, exchanged = (first_look(ALL, COUNT, 0, region) for region in (CORNER, CORNER.in_exchange()))
    assert len(removed) == len(exchanged) == COUNT // 4
    assert not set(removed) & set(exchanged)
    assert set(removed) <= set(first_look(ALL, COUNT, 0, OUTSIDE))  # the same samples come first for any region
    assert len(first_look(np.arange(100), COUNT, 0, CORNER)) == QUARTER.least


@pytest.mark.parametrize("kind", ["statistics", "detail", "length", "location"])
def test_a_property_is_looked_at_in_half_of_its_samples_which_may_settle_it(kind):
    region = Region(kind)
    assert len(first_look(np.arange(32), COUNT, 0, region)) == OF_PROPERTY.least
    # 16 values with a spread of 0.03: their 99 % interval reaches 0.019 to either side, that of 99.9 % 0.025.
    few = np.linspace(-0.05, 0.05, OF_PROPERTY.least)
    for effect, settled in ((0.15, True), (0.17, False), (0.2, False), (0.22, True)):
        assert settles(few + effect, "reliance_on_detail", region, rows=32) is settled, effect
    assert not settles(few[1:] + 0.15, "reliance_on_detail", region, rows=32)
    assert RelianceOnDetail.least_effect == 0.18


def test_an_interval_below_what_matters_ends_a_test():
    assert settles(NOISE + 0.035)
    assert not settles(NOISE + 0.045)
    assert not settles(NOISE + 0.042)  # the 95 % interval reaches 0.007
    assert settles(NOISE + 0.045, min_effect=0.1)
    assert settles(NOISE + 0.0395)
    assert not settles(NOISE + 0.0395, confidence=0.999)  # a stricter user is not overruled
    assert settles(NOISE + 0.2, "reliance_outside_annotation", scope=OVERALL)  # it is confirmed from 0.3 on
    assert not settles(np.append(NOISE[1:], np.nan) + 0.035)  # a sample less than a look has


def test_an_interval_far_above_what_matters_ends_a_test():
    assert settles(NOISE + 0.065, medium="image")
    assert not settles(NOISE + 0.055, medium="image")
    assert not settles(NOISE + 0.059, medium="image")
    assert not settles(NOISE + 0.065, medium="image", confidence=0.99999)
    assert not settles(NOISE + 0.3)  # a class of texts is confirmed from 0.5 on, and matters from 0.05 on
    assert not settles(NOISE + 0.505, "reliance_outside_annotation")  # of one class
    assert settles(NOISE + 0.515, "reliance_outside_annotation")
    assert not settles(NOISE + 0.305, "reliance_outside_annotation", scope=OVERALL)
    assert settles(NOISE + 0.315, "reliance_outside_annotation", scope=OVERALL)


def test_an_exchange_is_confirmed_early_from_thirty_points_on():
    assert settles(NOISE + 0.2, "focus_at_position", CORNER)
    assert not settles(NOISE + 0.2, "focus_at_position", CORNER.in_exchange())
    assert settles(NOISE + 0.4, "focus_at_position", CORNER.in_exchange())


def test_what_ends_a_test_early_is_corrected_over_all_tests():
    # Two values: half of the samples do not move, the others by 0.5 (with a slight fall, so that all signs differ).
    rare = np.where(np.arange(HALF.least) % 5 == 0, 0.9, -0.01)
    p_value = sign_flip_test(-rare, 0.0, resamples=99_999)
    at_most = int(0.05 / 10 / p_value)
    assert settles(rare, tests=at_most, scope=OVERALL)
    assert not settles(rare, tests=at_most + 1, scope=OVERALL)


@pytest.mark.parametrize(("medium", "moved", "settled"), [
    ("image", 0.19, True), ("image", 0.21, False), ("text", 0.49, True), ("text", 0.51, False),
])  # fmt: skip
def test_a_class_is_settled_by_five_samples_of_which_none_moved(medium, moved, settled):
    seen = np.array([0.0, 0.1, 0.0, 0.05, moved])
    assert settles(seen, "reliance_outside_annotation", rows=12, medium=medium) is settled
    assert not settles(seen[:4], "reliance_outside_annotation", rows=12)
    assert not settles(0 * seen, "focus_outside_annotation", rows=12)  # 5 points would matter: five samples are too few


def test_a_few_samples_are_settled_by_a_half_of_which_none_moved():
    unmoved = np.full(9, 0.99 * UNMOVED * 0.05)
    assert settles(unmoved, rows=18)
    assert not settles(unmoved, rows=19)  # less than a half
    assert not settles(unmoved[:7], rows=14)
    assert not settles(np.append(unmoved[1:], 1.01 * UNMOVED * 0.05), rows=18)
    assert settles(-unmoved - 0.5, rows=18)  # what makes an answer surer is no reliance


def test_a_class_too_small_for_any_finding_is_not_tested_further():
    # Among 12 tests it takes 8 samples: 12 / 2^8 is the first below 0.05.
    moved = np.full(3, 0.9)
    assert settles(moved, "reliance_outside_annotation", rows=7, tests=12)
    assert not settles(moved, "reliance_outside_annotation", rows=8, tests=12)
    assert not settles(moved, rows=7, tests=12)  # suspected by its map: it is reported, and tested
