import errno
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from examples import OPEN, picture, record
from examples import RECORDED as FINDING
from PIL import Image

from lrptrain.loggers import (
    ClassMap,
    EpochRecord,
    read_class_maps,
    read_events,
    read_findings,
    read_samples,
    write_record,
)
from lrptrain.loggers.local import picture_path


def strict(text):
    """Parse JSON as other languages do: without NaN and Infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_everything_reads_back(tmp_path):
    write_record(tmp_path, record())
    (event,) = read_events(tmp_path)
    assert event == {
        "epoch": 3,
        "step": 31,
        "format": 2,
        "scalars": {"relevance/epg": 0.25, "relevance/rank": None},
        "findings": [FINDING.to_dict()],
        "weights": {"epoch": 1, "step": 11},
    }
    samples = read_samples(tmp_path)
    assert list(samples) == ["epoch", "step", "sample_id", "label", "epg"]
    assert samples["sample_id"] == ["17", "a/b"]
    assert samples["epoch"] == [3, 3]
    assert math.isnan(samples["epg"][1])
    assert read_findings(tmp_path) == [FINDING]
    np.testing.assert_array_equal(np.asarray(Image.open(picture_path(tmp_path, 3, 31, 17))), picture(17).image)


def test_the_layout_is_as_documented_and_nothing_is_left_over(tmp_path):
    write_record(tmp_path, record())
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "events.jsonl",
        "findings.json",
        "highlights/epoch_0003_step_000031.html",
        "pictures/epoch_0003_step_000031/17.png",
        "pictures/epoch_0003_step_000031/a%2Fb.png",
        "samples/epoch_0003_step_000031.parquet",
    ]


def test_nothing_to_read_reads_as_nothing(tmp_path):
    assert read_events(tmp_path) == []
    assert read_samples(tmp_path) == read_class_maps(tmp_path) == {}
    assert read_findings(tmp_path) == []
    write_record(tmp_path, EpochRecord(epoch=0, step=0, samples={"sample_id": []}))
    assert read_samples(tmp_path) == {}
    assert [event["epoch"] for event in read_events(tmp_path)] == [0]


def test_numbers_without_json_become_null(tmp_path):
    scalars = {"relevance/a": math.inf, "relevance/b": np.float32("nan"), "relevance/c": np.float32(0.5)}
    write_record(tmp_path, record(scalars=scalars, findings=[replace(FINDING, effect=math.nan)]))
    line = strict((tmp_path / "events.jsonl").read_text())
    assert line["scalars"] == {"relevance/a": None, "relevance/b": None, "relevance/c": 0.5}
    assert strict((tmp_path / "findings.json").read_text())[0]["effect"] is None


@pytest.mark.parametrize("cut", [1, 20])
def test_a_half_written_line_is_skipped_and_the_next_epoch_is_whole(tmp_path, cut):
    for epoch in (0, 1):
        write_record(tmp_path, record(epoch))
    events = tmp_path / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-cut])
    # Less its newline a line is still whole.
    assert [event["epoch"] for event in read_events(tmp_path)] == ([0, 1] if cut == 1 else [0])
    write_record(tmp_path, record(2))
    assert [event["epoch"] for event in read_events(tmp_path)] == ([0, 1, 2] if cut == 1 else [0, 2])


def test_findings_are_read_in_the_order_in_which_they_are_named(tmp_path):
    for findings in ([OPEN, FINDING], [FINDING, OPEN]):
        write_record(tmp_path, record(findings=findings))
        assert read_findings(tmp_path) == findings


def test_an_epoch_written_again_is_replaced(tmp_path):
    for epoch in (0, 1):
        write_record(tmp_path, record(epoch))
    again = record(0, scalars={"relevance/epg": 0.9}, pictures=[picture(17, value=200)], findings=[])
    write_record(tmp_path, replace(again, samples={"sample_id": ["17"], "label": [1], "epg": [0.1]}))
    first, second = read_events(tmp_path)
    assert (first["epoch"], first["scalars"]["relevance/epg"], first["findings"]) == (0, 0.9, [])
    assert second["epoch"] == 1
    assert read_samples(tmp_path, 0)["label"] == [1]
    # Those of epoch 1, the last one, though epoch 0 was written after it.
    assert read_findings(tmp_path) == [FINDING]
    assert [path.name for path in picture_path(tmp_path, 0, 1, 17).parent.iterdir()] == ["17.png"]
    assert np.asarray(Image.open(picture_path(tmp_path, 0, 1, 17))).max() == 200


def test_maps_keep_three_digits_of_any_magnitude_and_little_space(tmp_path):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(64, 196)) * 10.0 ** rng.uniform(-30, 30, (64, 1))
    maps[0, :3] = [math.nan, math.inf, 0.0]
    column = [values.tolist() for values in maps]
    column[5] = None
    write_record(tmp_path, record(samples={"sample_id": list(range(64)), "map_label": column}))
    found = read_samples(tmp_path)["map_label"]
    assert found[5] is None
    np.testing.assert_allclose(np.array(found[6:]), maps[6:], rtol=2**-11)
    np.testing.assert_allclose(found[0], maps[0], rtol=2**-11)
    assert next(tmp_path.glob("samples/*")).stat().st_size < 3 * maps.size  # bytes


def test_epochs_with_other_columns_read_as_one_table(tmp_path):
    write_record(tmp_path, record(0, samples={"sample_id": ["a"], "epg": [None]}))
    write_record(tmp_path, record(1, samples={"sample_id": ["a"], "epg": [0.5], "rank": [0.1]}))
    assert read_samples(tmp_path) == {
        "epoch": [0, 1],
        "step": [1, 11],
        "sample_id": ["a", "a"],
        "epg": [None, 0.5],
        "rank": [None, 0.1],
    }


def test_maps_of_other_classes_read_back(tmp_path):
    maps = [ClassMap("a", "<owl>", 0.125, np.array([0.5, -1.0])), ClassMap("b", "cat", 0.25, np.array([2.0]))]
    for epoch in (0, 1):
        write_record(tmp_path, record(epoch, class_maps=maps))
    assert read_class_maps(tmp_path, 1) == {
        "epoch": [1, 1],
        "step": [11, 11],
        "sample_id": ["a", "b"],
        "class": ["<owl>", "cat"],
        "probability": [0.125, 0.25],
        "map_class": [[0.5, -1.0], [2.0]],
    }
    assert read_class_maps(tmp_path)["epoch"] == [0, 0, 1, 1]


def test_any_sample_id_stays_inside_the_folder(tmp_path):
    ids: list[int | str] = ["../../escape", "..", "a/b", "a_b", "ü" * 300, "ü" * 300 + "x", 7]
    write_record(tmp_path / "run", record(pictures=[picture(sample_id, i) for i, sample_id in enumerate(ids)]))
    for i, sample_id in enumerate(ids):
        assert np.asarray(Image.open(picture_path(tmp_path / "run", 3, 31, sample_id)))[0, 0, 0] == i
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_numbers_are_written_before_everything_that_takes_room(tmp_path):
    """On a disk that fills up while pictures are written, the line is there already."""
    seen: dict = {}

    def looks():
        seen.update(events=read_events(tmp_path), samples=read_samples(tmp_path), findings=read_findings(tmp_path))
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_record(tmp_path, record(inputs={17: looks}))
    assert [event["epoch"] for event in seen["events"]] == [3]
    assert seen["samples"]["sample_id"] == ["17", "a/b"]
    assert seen["findings"] == [FINDING]
    assert picture_path(tmp_path, 3, 31, 17).exists()  # one thing that fails does not keep the others away


def test_a_folder_may_be_named_by_a_text_and_must_be_there(tmp_path):
    folder = str(tmp_path / "run")
    write_record(folder, record())
    assert read_findings(folder) == read_findings(tmp_path / "run") == [FINDING]
    assert read_events(folder) == read_events(tmp_path / "run")
    assert read_samples(folder)["sample_id"] == ["17", "a/b"]
    assert read_class_maps(folder) == read_class_maps(tmp_path / "run")
    for read in (read_findings, read_events, read_samples, read_class_maps):
        with pytest.raises(FileNotFoundError, match=r"there is no folder of a run '.*typo'"):
            read(f"{tmp_path}/typo")
