"""The rivals' own code finds what it is made for, and nothing in noise; without its packages, a line says so."""

import inspect
import warnings

import numpy as np
import pytest
import torch

from experiments.benchmark import own_code, watch
from experiments.benchmark import run as command
from experiments.benchmark.cases import Case
from experiments.benchmark.scoring import DETECTORS
from lrptrain.batch import Sample
from lrptrain.monitor.evaluation import ExplainedSample

LABELS = np.repeat(np.arange(4), 50)
NEEDED = "needs make rivals"


def explained(predicted: int, relevance: list[float]) -> ExplainedSample:
    """An image of so many patches."""
    maps = {"predicted": torch.tensor(relevance)}
    return ExplainedSample(Sample(0, 0, {}), predicted, np.ones(2), maps, (1, len(relevance)), 2, np.nan, {})


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


def test_a_line_says_what_is_missing_before_anything_is_trained(monkeypatch):
    with pytest.raises(SystemExit, match=r"^the rivals' own code needs no_such_package: run `make rivals`$"):
        own_code.require_packages(("numpy", "no_such_package"))
    monkeypatch.setattr(own_code, "find_spec", lambda name: None)
    monkeypatch.setattr(watch, "prepared", lambda case: pytest.fail("a run began"))
    with pytest.raises(SystemExit, match="cleanlab, cleanvision, datasets, corelay: run `make rivals`"):
        watch.watched(Case("digits", "tag", 0.9, 99, 0), own_code=True)


def test_own_code_is_asked_for_and_stands_beside_the_other_detectors():
    assert inspect.signature(watch.watched).parameters["own_code"].default is False
    assert [each.name for each in DETECTORS[-2:]] == ["cleanlab Datalab", "corelay SpRAy"]
    row = {"rivals": {"cleanlab Datalab": None, "corelay SpRAy": 0.5}}
    scores = [each.score(row) for each in DETECTORS[-2:]]
    assert np.isnan(scores[0])
    assert scores[1] == 0.5


def test_datalab_gets_pictures_and_corelay_the_maps_of_the_predicted_class(monkeypatch):
    monkeypatch.setattr(watch, "datalab", lambda pictures, labels: float(pictures[labels == 1].mean()))
    monkeypatch.setattr(watch, "spray", lambda maps, answers: float(maps[answers == 1].sum()))
    columns = {"image": torch.zeros(2, 3, 4, 4), "label": torch.arange(2)}
    net = torch.nn.Linear(1, 1)
    run = watch.Run(net, net, columns, columns, columns, columns, {}, 1e-3, 2)
    scored = [explained(0, [1.0, -2.0]), explained(1, [-3.0, 4.0])]
    expected = {"cleanlab Datalab": np.mean(watch.MEAN), "corelay SpRAy": 4.0}
    assert watch.of_own_code(run, scored) == pytest.approx(expected)
    del columns["image"]
    assert np.isnan(watch.of_own_code(run, scored)["cleanlab Datalab"])


def test_a_test_with_own_code_begins_no_run_without_it(monkeypatch, tmp_path):
    monkeypatch.setattr(own_code, "find_spec", lambda name: None)
    monkeypatch.setattr(command, "watched", lambda case, asked: pytest.fail("a run began"))
    with pytest.raises(SystemExit, match="run `make rivals`"):
        command.complete(tmp_path / "ninth.jsonl", [], 1, own_code=True)
