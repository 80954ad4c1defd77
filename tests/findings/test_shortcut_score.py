"""One number of all that speaks for a shortcut."""

import math

import pytest

from lrptrain.findings.plain_features import Predictability
from lrptrain.findings.shortcut_score import shortcut_score


def test_it_is_the_weighted_sum():
    # The geometric mean of 0.25 and 0.64 is 0.4.
    assert shortcut_score(1.5, Predictability(0.25, 0.64), focus=0.4, chance=0.5) == pytest.approx(1.5 + 0.8 + 0.2)
    assert shortcut_score(0.0, Predictability(0.0, 1.0), focus=0.9, chance=0.4) == pytest.approx(-1)


def test_plain_features_count_for_more_without_annotations():
    plain = Predictability(0.25, 0.64)
    assert shortcut_score(1.5, plain, focus=math.nan, chance=math.nan) == pytest.approx(1.5 + 3.2)
    # Annotations, and maps without any positive relevance.
    assert shortcut_score(1.5, plain, focus=math.nan, chance=0.5) == pytest.approx(1.5 + 0.8)


def test_the_answers_alone_count_without_labels():
    assert shortcut_score(1.5, Predictability(0.25, math.nan), math.nan, math.nan) == pytest.approx(3.5)
    # Evaluations with and without the largest term could not be compared.
    assert math.isnan(shortcut_score(1.5, Predictability(math.nan, 0.5), focus=0.25, chance=0.5))
