"""How near a test comes to what confirms a finding."""

from dataclasses import replace

import numpy as np
import pytest
from examples import finding

from lrptrain.findings import OVERALL, Effect, Nearness, Scope, nearest_test

SUSPECT = finding(kind="focus_at_position")
UNSEEN = replace(SUSPECT, kind="reliance_outside_annotation", medium="image")


def effect_ratio(*arguments, **options):
    nearest = nearest_test(*arguments, **options)
    return nearest.ratio if nearest else 0


def effect(mean, samples=20, control=0.1):
    """An effect whose interval is 0.01 wide to either side, or so."""
    spread = np.linspace(-0.04, 0.04, samples)
    return Effect(control + mean + spread, np.full(samples, control))


def test_the_largest_effect_over_its_bound_is_told():
    assert effect_ratio([SUSPECT], [effect(0.1)], 0.05) == pytest.approx(2)
    assert effect_ratio([SUSPECT], [effect(0.1)], 0.2) == pytest.approx(0.5)
    assert effect_ratio([UNSEEN], [effect(0.1)], 0.05) == pytest.approx(0.5)
    assert effect_ratio([SUSPECT, UNSEEN], [effect(0.1), effect(0.3)], 0.05) == pytest.approx(2)
    assert effect_ratio([SUSPECT, UNSEEN], [effect(0.1), effect(0.5)], 0.05) == pytest.approx(2.5)


def test_an_exchange_has_a_bound_of_its_own():
    assert effect_ratio([SUSPECT], [effect(0.0)], 0.05, exchanges={0: effect(0.6)}) == pytest.approx(2)
    assert effect_ratio([SUSPECT], [effect(0.0)], 0.05, exchanges={0: "all read alike"}) == 0


def test_what_is_not_sure_does_not_count():
    assert effect_ratio([SUSPECT], [effect(0.005)], 0.05) == 0  # the interval reaches below 0
    assert effect_ratio([SUSPECT], [effect(-0.5)], 0.05) == 0
    assert effect_ratio([], [], 0.05) == 0
    assert effect_ratio([SUSPECT], ["one class"], 0.05) == 0
    # One test takes 5 samples (1 / 2^5 is the first below 0.05), two take 6.
    assert effect_ratio([SUSPECT], [effect(0.1, samples=5)], 0.05) > 0
    assert effect_ratio([SUSPECT] * 2, [effect(0.1, samples=5)] * 2, 0.05) == 0
    assert effect_ratio([SUSPECT], [effect(0.1, samples=5)], 0.05, exchanges={0: ""}) == 0


def test_what_comes_nearest_is_told_with_its_bound():
    nearest = nearest_test([SUSPECT, UNSEEN], [effect(0.05), effect(0.15)], 0.2)
    assert nearest is not None
    assert nearest.candidate is UNSEEN
    assert (nearest.effect, nearest.bound) == (pytest.approx(0.15), 0.2)
    told = replace(UNSEEN, kind="of_an_older_run", where="the edges of the image", scope=OVERALL)
    assert str(Nearness(told, 0.253, 0.35)) == "Nearest to a flag: the edges of the image, 25 points where 35 confirm."
    assert str(Nearness(told, 0.36, 0.35)).endswith("36 points where 35 confirm, but not surely.")
    of_class = replace(told, scope=Scope("class", "cat"))
    assert "the edges of the image (class cat), 25 points" in str(Nearness(of_class, 0.253, 0.35))
    cluster = replace(told, kind="relevance_cluster", where="centre (1 of 36 patches) of 16 images with similar maps")
    assert str(Nearness(cluster, 0.253, 0.35)).startswith(
        "Nearest to a flag: the centre of 16 images with similar maps,"
    )
