"""The map of maps, on maps whose clusters are known."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from lrptrain.dashboard import embedding
from lrptrain.dashboard.embedding import place_maps, read_embedding, word_relevance
from lrptrain.loggers import EpochRecord, Input, write_record

NAME = "epoch_0000_step_000000"
READ_AT = np.arange(40) % 3  # which of three places, or of three words, a sample is read by; 14, 13 and 13 of them


def write(folder, maps, inputs=None):
    columns: dict[str, list[Any]] = {
        "sample_id": list(range(len(maps))),
        "label": ["a"] * len(maps),
        "map_label": [list(map(float, each)) for each in maps],
    }
    write_record(folder, EpochRecord(0, 0, samples=columns, inputs=inputs or {}))


def pictures():
    """Maps of a 6 x 6 grid with nearly all relevance in one of three corners."""
    noise = np.random.default_rng(0).uniform(-0.02, 0.02, (len(READ_AT), 6, 6))
    for number, place in enumerate(READ_AT):
        row, column = [(0, 0), (0, 4), (4, 0)][place]
        noise[number, row : row + 2, column : column + 2] += 1.0
    return noise.reshape(len(READ_AT), 36)


def test_maps_that_are_alike_lie_together_and_form_clusters(tmp_path):
    write(tmp_path, pictures())
    placed = read_embedding(tmp_path, NAME, "label")
    assert placed["ids"] == [str(number) for number in range(40)]
    assert adjusted_rand_score(READ_AT, placed["cluster"]) == 1.0
    assert [each["size"] for each in placed["clusters"]] == [14, 13, 13]
    assert placed["clusters"][0]["grid"] == [6, 6]
    places = np.stack([placed["x"], placed["y"]], 1)
    assert places.min() == 0
    assert places.max() == 1
    apart = pairwise_distances(places)
    same = READ_AT[:, None] == READ_AT
    assert apart[same].max() < apart[~same].min()


def test_it_is_the_same_every_time(tmp_path):
    write(tmp_path, pictures())
    first = read_embedding(tmp_path, NAME, "label")
    embedding._embedding.cache_clear()
    assert read_embedding(tmp_path, NAME, "label") == first
    assert read_embedding(tmp_path, NAME, "label") is read_embedding(tmp_path, NAME, "label")  # kept


def test_the_size_of_a_map_and_what_speaks_against_the_class_do_not_place_it(tmp_path):
    maps = pictures()
    assert (maps < 0).any(1).all()
    write(tmp_path / "plain", maps)
    sizes = 2.0 ** (np.arange(len(maps)) % 7 - 3)[:, None]  # powers of two, which round nothing
    write(tmp_path / "other", np.where(maps < 0, 5 * maps, maps) * sizes)
    plain, other = (read_embedding(tmp_path / name, NAME, "label") for name in ("plain", "other"))
    assert [other[key] for key in ("x", "y", "cluster")] == [plain[key] for key in ("x", "y", "cluster")]


def test_maps_that_are_all_alike_lie_in_the_middle():
    np.testing.assert_array_equal(place_maps(np.full((20, 4), 0.25)), np.full((20, 2), 0.5))


def test_the_relevance_of_a_word_is_that_of_its_pieces_in_all_its_places():
    values = np.array([9.0, 0.5, -0.3, 0.25, -0.1, np.nan])
    words = [
        {"text": "[CLS]", "places": [0], "scored": False},
        {"text": "Good", "places": [1], "scored": True},
        {"text": "day", "places": [2], "scored": True},
        {"text": "goo", "places": [3, 4], "scored": True},
        {"text": "good", "places": [3, 4], "scored": True},
        {"text": "x", "places": [5], "scored": True},
    ]
    expected = {"good": 0.65, "day": 0.0, "goo": 0.15, "x": 0.0}
    assert word_relevance(values, words) == pytest.approx(expected)


def texts(number):
    words = [
        "[CLS]",
        *(f"w{(number * 7 + place) % 23}" for place in range(5)),
        ["spielberg", "bad", "boring"][READ_AT[number]],
    ]
    return lambda: Input(number, None, tokens=words, annotation=None, scored=[False] + [True] * 6)


def test_texts_that_are_read_by_the_same_words_lie_together(tmp_path):
    relevance = [[5.0, 0.01, 0.0, -0.5, 0.01, 0.0, 0.8]] * len(READ_AT)
    write(tmp_path, relevance, {number: texts(number) for number in range(len(READ_AT))})
    placed = read_embedding(tmp_path, NAME, "label")
    assert adjusted_rand_score(READ_AT, placed["cluster"]) == 1.0
    assert [each["words"][0] for each in placed["clusters"]] == ["spielberg", "bad", "boring"]


def test_what_cannot_be_placed_is_left_out_and_said(tmp_path):
    maps = pictures()
    maps[0] = -1  # nothing speaks for the class
    maps[1] = np.nan
    write(tmp_path, maps)
    placed = read_embedding(tmp_path, NAME, "label")
    assert placed["ids"] == [str(number) for number in range(2, 40)]
    assert placed["maps"] == 40
    assert "label only" in read_embedding(tmp_path, NAME, "predicted")["empty"]
    assert "no such evaluation" in read_embedding(tmp_path, "../x", "label")["empty"]
    write(tmp_path / "few", maps[2:10])
    assert "here are 8" in read_embedding(tmp_path / "few", NAME, "label")["empty"]
    (tmp_path / "samples" / f"{NAME}.parquet").write_bytes(b"PAR1 not really PAR1")
    assert "cannot be read" in read_embedding(tmp_path, NAME, "label")["empty"]


def test_of_very_many_maps_an_even_draw_is_placed(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "MOST_MAPS", 20)
    write(tmp_path, pictures())
    placed = read_embedding(tmp_path, NAME, "label")
    assert placed["ids"] == [str(int(place)) for place in np.linspace(0, 39, 20).round()]
    assert placed["maps"] == 40


def test_the_page_waits_for_no_library_of_models():
    # They take seconds to import; here, other tests have imported them, so a process of its own is asked.
    heavy = {"torchmetrics", "torchvision", "transformers", "sklearn", "matplotlib"}
    code = f"import sys, lrptrain.dashboard.server; print(sorted({heavy} & set(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == "[]"
