"""Scores over epochs: where they are drawn, what is said of them, and the numbers on their axes."""

import json
from typing import Any

import pytest
from browsing import Visit, served

from lrptrain.loggers import EpochRecord, write_record
from lrptrain.loggers.metrics import FINDINGS, LoggedMetric
from lrptrain.monitor.summary import logged_metrics

EXPLANATIONS = {key: metric.explanation for metric in logged_metrics() for key in metric.keys}
SCORES = {"shortcut_score": (2.0, 12.0, 42.0), "findings": (0, 1, 2)}
# A scalar that monitors no longer log: only the files of the run say what it is.
FORMER = LoggedMetric(
    ("shortcut_score",), "Shortcut score", FINDINGS, unit="number", explanation="Sums up what speaks for a shortcut."
)
EXPLANATIONS[FORMER.keys[0]] = FORMER.explanation


def write(folder, scores, metrics):
    samples: dict[str, list[Any]] = {
        "sample_id": [0, 1],
        "label": ["a", "b"],
        "predicted": ["a", "b"],
        "label_energy_pointing_game": [0, 1],
    }
    for epoch in range(3):
        values = {f"relevance/{name}": values[epoch] for name, values in scores.items()}
        write_record(folder, EpochRecord(epoch, epoch, scalars=values, samples=samples))
    (folder / "run.json").write_text(json.dumps({"metrics": [metric.to_dict() for metric in metrics]}))


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    write(folder / "scored", {"reliance": (0.5, 0.5, 0.5), **SCORES}, [*logged_metrics(), FORMER])
    with served(folder) as address:
        visit = Visit(browser, address, viewport={"width": 1280, "height": 1000})
        yield visit
        assert visit.complaints == []
        visit.page.close()


def panel(page, title):
    return page.locator(".panel", has=page.locator("h2", has_text=title))


def test_the_first_curves_are_explained(visit):
    page = visit.view("runs", wait=".chart svg")
    for title, key, direction in (
        ("Accuracy on the sample", "accuracy", "Higher"),
        ("Relevance on the annotation", "label/energy_pointing_game", "Higher"),
        ("Reliance on shortcuts", "reliance", "Lower"),
    ):
        assert panel(page, title).locator(".meaning").inner_text() == f"{EXPLANATIONS[key]} {direction} is better."


def test_the_numbers_on_an_axis_are_plain(visit):
    page = visit.view("runs", wait="#score")
    shown = page.locator(".panel.wide")
    page.select_option("#score", "=relevance/shortcut_score")
    shown.locator("svg text", has_text="20").wait_for()
    ticks = [text for text in shown.locator("svg text").all_text_contents() if text != "epoch"]
    assert {"10", "20"} <= set(ticks)
    assert not [text for text in ticks if "e" in text]


@pytest.mark.parametrize(("key", "direction"), [("shortcut_score", ""), ("findings", " Lower is better.")])
def test_any_score_that_is_chosen_is_explained(visit, key, direction):
    page = visit.view("runs", wait="#score")
    wide = page.locator(".panel.wide")
    page.select_option("#score", f"=relevance/{key}")
    wide.locator(".meaning", has_text=EXPLANATIONS[key]).wait_for()
    assert wide.locator(".meaning").inner_text() == f"{EXPLANATIONS[key]}{direction}"


def test_the_score_of_a_histogram_is_explained(visit):
    page = visit.view("samples", "scored", "svg.histogram", plots="scores")
    text = page.locator(".plot-of-scores .meaning").inner_text()
    assert text == f"{EXPLANATIONS['label/energy_pointing_game']} Higher is better."


def test_the_accuracy_among_the_scores_is_explained(visit):
    page = visit.view("runs", wait="#score")
    page.select_option("#score", "correct")
    page.locator(".panel.wide .meaning", has_text=EXPLANATIONS["accuracy"]).wait_for()
