import json
import math
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from lrptrain.files import (
    append_json_line,
    file_name_of,
    folder_size_mb,
    is_file_name,
    read_text,
    read_whole,
    to_json,
    write_atomically,
    write_json,
)

VALUE = {
    "nan": math.nan,
    "tuple": (1, -math.inf, "a"),
    "numpy": [np.float32("nan"), np.int64(3), np.array([[0.5, np.inf]])],
    "torch": torch.tensor([1.0, math.nan], dtype=torch.float64),
    "flag": np.bool_(True),
    "nothing": None,
}
STRICT = {
    "nan": None,
    "tuple": [1, None, "a"],
    "numpy": [None, 3, [[0.5, None]]],
    "torch": [1.0, None],
    "flag": True,
    "nothing": None,
}


def test_every_number_becomes_one_that_json_knows(tmp_path):
    assert json.loads(to_json(VALUE)) == STRICT
    write_json(tmp_path / "new" / "value.json", VALUE)
    assert json.loads((tmp_path / "new" / "value.json").read_text(encoding="utf-8")) == STRICT
    append_json_line(tmp_path / "lines.jsonl", VALUE)
    assert json.loads((tmp_path / "lines.jsonl").read_text(encoding="utf-8")) == STRICT


def test_other_objects_need_a_way_to_be_written(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(tmp_path / "value.json", {"path": tmp_path})
    assert list(tmp_path.iterdir()) == []
    write_json(tmp_path / "value.json", {"path": tmp_path}, default=str)
    assert json.loads((tmp_path / "value.json").read_text(encoding="utf-8")) == {"path": str(tmp_path)}


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, [1])

    def fails(part):
        part.write_text("[2")
        assert json.loads(path.read_text(encoding="utf-8")) == [1]
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_atomically(path, fails)
    assert [each.name for each in tmp_path.iterdir()] == ["value.json"]
    assert json.loads(path.read_text(encoding="utf-8")) == [1]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else a machine that goes down in between may leave the name of a file without its content."""
    path, lines = tmp_path / "value.json", tmp_path / "lines.jsonl"
    synced = []

    def sync(descriptor):
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_json(path, [1])
    append_json_line(lines, [1])
    written = [(each.stat().st_ino, each.stat().st_size) for each in (path, lines)]
    assert synced == [(*written[0], False), (*written[1], True)]


def test_what_waits_in_a_folder_is_not_followed(tmp_path):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine", encoding="utf-8")
    names = []

    def write(part):
        names.append(part.name)
        part.write_text("1")

    write_atomically(folder / "value", write)
    write_atomically(folder / "value", write)
    assert len({*names}) == 2  # nobody can wait under that name
    (folder / "value").unlink()
    (folder / "value").symlink_to(outside)
    (folder / "lines").symlink_to(outside)
    write_json(folder / "value", 1)  # in the place of the link
    with pytest.raises(OSError, match="lines"):
        append_json_line(folder / "lines", 1)
    assert outside.read_text(encoding="utf-8") == "mine"
    umask = os.umask(0)
    os.umask(umask)
    assert (folder / "value").stat().st_mode & 0o777 == 0o666 & ~umask


LIMITED = """
import resource, signal, sys
from pathlib import Path
from lrptrain.files import append_json_line, write_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = Path(sys.argv[1])
for write in (append_json_line, write_json):
    try:
        write(folder / write.__name__, "x" * 2000)
    except OSError as error:
        print(error.errno)
"""


def test_a_line_or_file_for_which_there_is_no_room_leaves_the_file_as_it_was(tmp_path):
    append_json_line(tmp_path / "append_json_line", 1)
    write_json(tmp_path / "write_json", 1)
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2
    assert [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())] == ["1\n", "1\n"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE) != (1000, 1000)


def test_an_incomplete_line_keeps_a_line_of_its_own(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("1\n{half", encoding="utf-8")
    append_json_line(path, 2)
    assert path.read_text(encoding="utf-8") == "1\n{half\n2\n"


def test_sizes_and_names(tmp_path):
    assert folder_size_mb(tmp_path / "absent") == 0
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(bytes(3000))
    assert folder_size_mb(tmp_path) == 0.003
    names = [file_name_of(sample_id) for sample_id in ("a/b", "a_b", 7, "x" * 500, "x" * 500 + "y")]
    assert names[:3] == ["a%2Fb", "a_b", "7"]
    assert len(set(names)) == 5
    assert max(map(len, names)) < 200


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_has_no_end_is_not_read(make, tmp_path):
    make(tmp_path / "file")
    with pytest.raises(OSError, match="is no regular file"):
        read_whole(tmp_path / "file")


def test_a_file_is_read_up_to_a_size(tmp_path):
    (tmp_path / "file").write_bytes("grün\r\n".encode())
    assert read_whole(tmp_path / "file", 7) == "grün\r\n".encode()
    assert read_text(tmp_path / "file") == "grün\r\n"
    with pytest.raises(OSError, match="holds more than 0 MB"):
        read_whole(tmp_path / "file", 6)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert len(read_whole(tmp_path / "link")) == 7
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "absent")


FILE_NAMES = ("a", "a b%2F", "..a")


@pytest.mark.parametrize("name", [*FILE_NAMES, "..", ".", "", "a/b", "/a", "a\\b", "a\0"])
def test_the_name_of_a_file_leads_nowhere_else(name):
    assert is_file_name(name) == (name in FILE_NAMES)
