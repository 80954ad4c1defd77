"""Run folders that are damaged at random, through everything that reads them: an answer or one line, never a traceback.

`LRPTRAIN_FUZZ=1000 python -m pytest tests/fuzz/test_readers.py` damages a thousand copies.
"""

import json
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from examples import ENDED, finding
from PIL import Image

from lrptrain.dashboard.maps import read_cards, read_histories
from lrptrain.dashboard.report import write_html_report
from lrptrain.dashboard.runs import about_run, find_runs, read_new_events
from lrptrain.dashboard.samples import read_sample_table, read_scores
from lrptrain.files import to_json
from lrptrain.loggers import ClassMap, EpochRecord, Input, Picture, read_events, read_findings, write_record
from lrptrain.monitor.check import check

COPIES = int(os.environ.get("LRPTRAIN_FUZZ", "60"))
ODD = [b"", b"null", b"[]", b"{}", b"3", b'"text"', b"{" * 2000, b"\xff\xfe\x00", b"NaN", b'{"epoch": 1e999}']


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of three evaluations with everything that a monitor writes."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    pixels = np.zeros((16, 16, 3), np.uint8)
    for epoch in range(3):
        write_record(
            folder,
            EpochRecord(
                epoch=epoch,
                step=epoch,
                scalars={"relevance/accuracy": 0.5},
                samples={"sample_id": ["a", "b"], "label": ["x", "y"], "map_label": [[0.1] * 4, [0.2] * 4]},
                pictures=[Picture("a", "", pixels)],
                findings=[finding(), ENDED],
                inputs={"a": lambda: Input("a", (2, 2), pixels)},
                class_maps=[ClassMap("a", "x", 0.5, np.ones(4))],
            ),
        )
    (folder / "run.json").write_text(json.dumps({"id": "1", "confidence": 0.95, "class_names": ["x", "y"]}))
    return folder


def damage(path: Path, chance: random.Random) -> None:
    """Do to a file what disks, kills and other programs do."""
    content = bytearray(path.read_bytes())
    kind = chance.choice(["cut", "flip", "odd", "remove", "folder", "link", "twice", "value"])
    if kind == "cut":
        path.write_bytes(content[: chance.randrange(len(content) + 1)])
    elif kind == "flip":
        for _ in range(chance.randrange(1, 20)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
    elif kind == "odd":
        path.write_bytes(chance.choice(ODD))
    elif kind == "twice":
        path.write_bytes(content + content)
    elif kind == "value":  # of JSON, another type
        wrong = chance.choice([b"null", b"[]", b"1e999", b'"text"', b"-1", b"{}"])
        path.write_bytes(content.replace(chance.choice([b"0", b"0.5", b'"x"', b"[2, 2]", b"0.95"]), wrong))
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to("/etc/hostname")


def read_everything(folder: Path) -> None:
    """Call every reader of the page, the report and the loggers; what they return must be strict JSON."""
    answers = [about_run(folder), read_new_events(folder), read_scores(folder)]
    table = read_sample_table(folder)
    answers += [table, read_cards(folder, table["evaluation"] or "", ["a", "b"]), read_histories(folder, ["a"])]
    assert to_json(answers)
    assert len(read_events(folder)) <= 6
    read_findings(folder)


@pytest.mark.parametrize("seed", range(4))
def test_no_reader_ends_in_a_traceback(seed, recorded, tmp_path):
    chance = random.Random(seed)
    for number in range(COPIES // 4):
        folder = Path(shutil.copytree(recorded, tmp_path / str(number)))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in chance.sample(files, chance.randrange(1, 4)):
            damage(path, chance)
        read_everything(folder)
        if find_runs(folder):
            write_html_report(folder, tmp_path / "report.html")
        with suppress(FileNotFoundError, ValueError):  # in one line
            check(folder)
        shutil.rmtree(folder)


def test_the_undamaged_folder_reads_whole(recorded):
    """So that the copies above are of something."""
    read_everything(recorded)
    assert len(read_events(recorded)) == 3
    assert read_sample_table(recorded)["columns"]["sample_id"] == ["a", "b"]
    with Image.open(next(recorded.glob("pictures/*/*.png"))) as picture:
        assert picture.size == (16, 16)
