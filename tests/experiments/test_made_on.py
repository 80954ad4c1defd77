"""The line of a README on what its results were made on: of whole files, of single measurements, and of older ones."""

import json

import pytest

from experiments import made_on
from experiments.records import KEY, append, save, stamped
from experiments.speed import cells

STAMP = {"cpu": "A chip", "instructions": "AVX2", "threads": 1, "torch": "2.15.0", "commit": "abc"}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The folder of results of an experiment that is called "one"."""
    monkeypatch.setattr(made_on, "HERE", tmp_path)
    monkeypatch.setitem(made_on.BEFORE, "one", "0000001")
    return tmp_path / "one" / "results"


def test_machines_commits_and_what_says_nothing_are_told(results):
    for commit in ("abc", "abd+", "abc"):
        append(results / "runs.jsonl", {KEY: STAMP | {"commit": commit}})
    append(results / "runs.jsonl", {KEY: STAMP | {"cpu": "Another"}})
    first = (
        "Made on A chip (AVX2), threads: 1, torch 2.15.0, commits abc, abd+; Another (AVX2), threads: 1, torch 2.15.0"
    )
    assert made_on.line("one") == f"{first}, commits abc. A `+`: files that git tracks had been changed since."
    (results / "older.json").write_text("{}")
    assert "What 1 of the 5 results were made on was not written down: " in made_on.line("one")
    assert made_on.line("one").endswith("last changed in commit 0000001.")


def test_an_experiment_without_results_or_with_silent_ones_says_so(results):
    expected = "What the results were made on was not written down: "
    assert made_on.line("one").startswith(expected)
    save(results / "costs.json", {KEY: None})
    assert made_on.line("one").startswith(expected)


def test_of_a_file_of_measurements_each_counts(results, monkeypatch):
    monkeypatch.setattr(made_on, "CELLS", ("one",))
    results.mkdir(parents=True)
    files = {
        "by_cell": {"a": {KEY: STAMP}, "b": {"time": 1}},
        "by_file": {
            "cells": {"a": {"commit": "abe-dirty"}, "b": {"commit": "abf"}},
            "cpu": "A chip",
            "torch": "2.14.0",
        },
        "on_a_device": {"cells": {"a": {"commit": "abg"}, "b": {KEY: STAMP}}, "device": "A card", "torch": "2.14.0"},
        "whole": {"cells": {"a": [1, 2]}, KEY: STAMP},
    }
    for name, content in files.items():
        (results / f"{name}.json").write_text(json.dumps(content))
    told = made_on.line("one")
    assert "A chip (AVX2), threads: 1, torch 2.15.0, commits abc;" in told
    assert "A chip, torch 2.14.0, commits abe+, abf;" in told
    assert "A card, torch 2.14.0, commits abg." in told
    assert "What 1 of the 7 results were" in told


def test_a_measurement_of_speed_says_on_what_it_was_made_and_so_does_one_that_failed():
    def failing():
        raise ValueError("no room")

    assert cells._outcome(lambda: {"time": 1.0}) == stamped({"time": 1.0})
    assert cells._outcome(failing) == stamped({"error": "ValueError: no room"})
