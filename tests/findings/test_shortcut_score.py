"""One number of all that speaks for a shortcut."""

import math

import pytest

from lrptrain.findings.shortcut_score import shortcut_score


def test_it_is_the_weighted_sum():
    assert shortcut_score(1.5, 0.25, focus=0.4, chance=0.5) == pytest.approx(1.5 + 2 + 0.8)
    assert shortcut_score(0.0, 0.0, focus=0.9, chance=0.4) == pytest.approx(-4)


def test_annotations_count_where_there_are_some():
    assert shortcut_score(1.5, 0.25, focus=math.nan, chance=math.nan) == pytest.approx(3.5)
    # Annotations, and maps without any positive relevance.
    assert shortcut_score(1.5, 0.25, focus=math.nan, chance=0.5) == pytest.approx(3.5)
    # Evaluations with and without the largest term could not be compared.
    assert math.isnan(shortcut_score(1.5, math.nan, focus=0.25, chance=0.5))
