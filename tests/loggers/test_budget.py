import warnings
from dataclasses import replace

import numpy as np
import pytest

from lrptrain.files import folder_size_mb
from lrptrain.loggers import ClassMap, EpochRecord, Highlight, Input, Picture, RecordWriter, read_events, read_samples

SIZE = "relevance/record_mb"


def record(epoch):
    noise = np.random.default_rng(epoch).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    return EpochRecord(
        epoch=epoch,
        step=epoch,
        samples={"sample_id": [1], "map_label": [[0.5, 0.25]]},
        pictures=[Picture(1, "", noise)],
        texts=[Highlight(1, "", "<p>", "p")],
        inputs={epoch: lambda: Input(epoch, (1, 2), noise)},
        class_maps=[ClassMap(1, "cat", 0.5, np.ones(2))],
    )


def test_the_size_is_told_and_grows(tmp_path):
    writer = RecordWriter(max_mb=10)
    told = [writer.write(tmp_path, record(epoch)).scalars[SIZE] for epoch in range(3)]
    assert told[0] == 0
    assert 0.012 < told[1] < told[2] < folder_size_mb(tmp_path) < 0.2
    assert [event["scalars"][SIZE] for event in read_events(tmp_path)] == told


def test_beyond_the_budget_the_record_goes_on_without_pictures(tmp_path):
    writer = RecordWriter(max_mb=0.02)
    writer.write(tmp_path, record(0))
    with pytest.warns(UserWarning, match=r"max_record_mb=0\.02: scores, findings and maps are still written"):
        full = writer.write(tmp_path, record(1))
    assert full.pictures  # for other loggers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.write(tmp_path, record(2))
    assert [event["epoch"] for event in read_events(tmp_path)] == [0, 1, 2]
    assert read_samples(tmp_path)["epoch"] == [0, 1, 2]
    for pattern in ("pictures/*", "highlights/*", "inputs/*.json", "class_maps/*"):
        assert len(list(tmp_path.glob(pattern))) == 1, pattern


def test_another_monitors_size_has_its_prefix(tmp_path):
    written = RecordWriter(1).write(tmp_path, replace(record(0), prefix="relevance/val"))
    assert list(written.scalars) == ["relevance/val/record_mb"]


def test_a_budget_is_a_size():
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="max_record_mb must be"):
            RecordWriter(wrong)
