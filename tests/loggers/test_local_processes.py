"""Records of processes that are killed, or for which there is no room."""

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from examples import RECORDED, record
from forks import start_fork
from PIL import Image

from lrptrain.loggers import (
    ClassMap,
    Input,
    Picture,
    read_class_maps,
    read_events,
    read_findings,
    read_samples,
    write_record,
)
from lrptrain.loggers.local import picture_path


def write_forever(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for epoch in range(10_000):
        pixels = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        write_record(folder, record(epoch, pictures=[Picture(i, "", pixels) for i in range(3)]))


def test_a_killed_run_leaves_every_finished_epoch(tmp_path):
    process = start_fork(write_forever, tmp_path)
    deadline = time.monotonic() + 60
    while len(read_events(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.join()
    events = read_events(tmp_path)
    assert [event["epoch"] for event in events] == list(range(len(events)))
    assert len(events) >= 3
    assert read_samples(tmp_path)["label"] == [0, 1] * len(events)
    for epoch in range(len(events) - 1):  # pictures follow the line
        for i in range(3):
            Image.open(picture_path(tmp_path, epoch, 10 * epoch + 1, i)).load()
    assert read_findings(tmp_path) == [RECORDED]


def write_where_no_file_may_be_large(folder: Path) -> None:
    """Exits with the number of epochs of which something could not be written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    pixels = np.random.default_rng(0).integers(0, 255, (400, 400, 3), dtype=np.uint8)
    media: dict[str, Any] = {
        "inputs": {17: lambda: Input(17, (2, 2), pixels)},
        "pictures": [Picture(17, "", pixels)],
        "class_maps": [ClassMap("a", "cat", 0.5, np.random.default_rng(0).normal(size=60_000))],
    }
    failures = 0
    for epoch in (0, 1):
        try:
            write_record(folder, record(epoch, **media))
        except OSError:
            failures += 1
    os._exit(failures)


def test_pictures_for_which_there_is_no_room_cost_no_number(tmp_path):
    folder = tmp_path / "run"
    process = start_fork(write_where_no_file_may_be_large, folder)
    process.join(60)
    assert process.exitcode == 2  # both epochs say that something is missing
    assert [(event["epoch"], event["scalars"]["relevance/epg"]) for event in read_events(folder)] == [
        (0, 0.25),
        (1, 0.25),
    ]
    assert read_findings(folder) == [RECORDED]
    assert read_samples(folder)["epoch"] == [0, 0, 1, 1]
    assert sorted(path.name for path in (folder / "highlights").iterdir()) == [
        "epoch_0000_step_000001.html",
        "epoch_0001_step_000011.html",
    ]
    assert read_class_maps(folder) == {}
    assert not [*folder.rglob("*.part"), *folder.rglob("*.png"), *folder.rglob("*.webp"), *folder.rglob("*.tmp")]
