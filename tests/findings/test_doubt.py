"""Where one draw of donors leaves a verdict open."""

import numpy as np
import pytest
from examples import finding

from lrptrain.findings import OVERALL
from lrptrain.findings.doubt import is_in_doubt
from lrptrain.intervention import Region

OUTSIDE = Region("outside")
CORNER = Region("patches", (3,))
# 64 values with a spread of 0.3: the 95 % interval of their mean reaches 0.072 to either side.
NOISE = np.linspace(-0.5, 0.5, 64)


def in_doubt(differences, region=OUTSIDE, kind="reliance_outside_annotation", **changed):
    settings = {"tests": 1, "min_effect": 0.05, "confidence": 0.95} | changed
    return is_in_doubt(finding(kind=kind, medium="image", scope=OVERALL), differences, region, **settings)


@pytest.mark.parametrize(("mean", "doubtful"), [(0.1, False), (0.15, True), (0.2, True), (0.25, True), (0.3, False)])
def test_an_interval_that_holds_the_least_effect_is_in_doubt(mean, doubtful):
    assert in_doubt(NOISE + mean) is doubtful  # the surroundings of images take 0.2


def test_it_is_the_effect_that_confirms_which_lies_in_the_interval():
    assert in_doubt(NOISE + 0.1, kind="focus_outside_annotation", min_effect=0.1)
    assert not in_doubt(NOISE + 0.2, CORNER, "focus_at_position")
    assert in_doubt(NOISE + 0.3, CORNER.in_exchange(), "focus_at_position")  # an exchange takes 0.3
    assert in_doubt(NOISE + 0.29, confidence=0.999)


def test_so_few_samples_that_nothing_could_be_confirmed_are_not_drawn_again():
    few = np.linspace(-0.5, 0.5, 9) + 0.2
    assert in_doubt(few)
    assert in_doubt(np.append(few, np.nan), tests=25)  # 2^-9 times 25 is 0.049
    assert not in_doubt(few, tests=26)
    assert not in_doubt(np.append(few[:8], np.nan), tests=25)
    assert not in_doubt(np.array([0.0, 0.1, 0.3, 0.4]), confidence=0.5)
