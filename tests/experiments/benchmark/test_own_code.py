"""The rivals' own code finds what it is made for, and nothing in noise."""

import warnings

import numpy as np
import pytest

from experiments.benchmark import own_code

LABELS = np.repeat(np.arange(4), 50)
NEEDED = "needs make rivals"


def test_datalab_finds_the_brightness_that_goes_with_the_class():
    for package in ("cleanlab", "cleanvision", "datasets"):
        pytest.importorskip(package, reason=NEEDED)
    pictures = np.random.default_rng(0).random((200, 12, 12, 3))
    filters = list(warnings.filters)
    darker = own_code.datalab(pictures * (0.4 + 0.2 * LABELS)[:, None, None, None], LABELS)
    assert darker > 0.95
    unrelated = own_code.datalab(pictures, LABELS)
    assert 0.25 <= unrelated < 0.4  # a quarter is guessed
    assert unrelated == own_code.datalab(pictures, LABELS)
    assert warnings.filters == filters


def test_datalab_says_nothing_and_opens_no_process(capfd, monkeypatch):
    for package in ("cleanlab", "cleanvision", "datasets"):
        pytest.importorskip(package, reason=NEEDED)
    monkeypatch.setattr("multiprocessing.Pool", lambda *_: pytest.fail("a pool was opened"))
    own_code.datalab(np.random.default_rng(0).random((40, 8, 8, 3)), np.arange(40) % 2)
    assert capfd.readouterr() == ("", "")


def test_corelays_clusters_go_with_the_answers_where_each_class_has_its_place():
    pytest.importorskip("corelay", reason=NEEDED)
    rng = np.random.default_rng(0)
    maps = rng.random((200, 36)) * 0.02
    elsewhere = maps.copy()
    maps[np.arange(200), LABELS * 9] += 1
    elsewhere[np.arange(200), rng.integers(0, 36, 200)] += 1
    planted = own_code.spray(maps, LABELS)
    assert planted > 0.5
    assert planted == own_code.spray(maps, LABELS)
    assert abs(own_code.spray(elsewhere, LABELS)) < 0.1
    assert abs(own_code.spray(maps, rng.permutation(LABELS))) < 0.1
    assert own_code.spray(maps, np.zeros(200, int)) == 0


def test_corelay_takes_few_maps_and_empty_ones():
    pytest.importorskip("corelay", reason=NEEDED)
    maps = np.random.default_rng(0).random((20, 9))
    maps[:3] = 0
    assert -1 <= own_code.spray(maps, np.arange(20) % 2) <= 1
