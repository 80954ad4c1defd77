import json

import pytest
import torch
from PIL import Image

from lrptrain.data.pictures import read_mask
from lrptrain.segmentation import export_files
from lrptrain.segmentation.export_files import Entry


def exported(name="cat 1", split="train", seed=0):
    generator = torch.Generator().manual_seed(seed)
    seeds, mask, true = (torch.randint(0, 3, (24, 32), generator=generator).to(torch.uint8) for _ in range(3))
    mask[0] = 255
    pictures = {export_files.SEEDS: seeds, export_files.REFINED: seeds, export_files.MASKS: mask}
    pictures |= {export_files.TRUTH: true, export_files.JPEG_IMAGES: torch.rand(3, 24, 32, generator=generator)}
    return Entry(name, split, (0, 2), (24, 32)), pictures


def write(folder, *named, rank=0):
    entry, pictures = exported(*named)
    return export_files.write_image_files(folder, entry, pictures, rank)


def skipped(name):
    return Entry(name, "train", (), (24, 32), "skipped", "no class is present")


def test_what_is_written_is_read(tmp_path):
    given, pictures = exported()
    entry = export_files.write_image_files(tmp_path, given, pictures)
    assert export_files.read_index(tmp_path) == [entry] == [given]
    for kind in (export_files.SEEDS, export_files.REFINED, export_files.MASKS, export_files.TRUTH):
        assert torch.equal(read_mask(tmp_path / kind / "cat 1.png", (24, 32), 2), pictures[kind])
    with Image.open(tmp_path / export_files.JPEG_IMAGES / "cat 1.jpg") as picture:
        assert picture.size == (32, 24)
    assert not list(tmp_path.rglob("*.part"))


def test_parts_of_two_processes_are_merged(tmp_path):
    write(tmp_path, "b", rank=0)
    write(tmp_path, "a", "val", rank=1)
    export_files.append_entry(tmp_path, skipped("c"), rank=1)
    entries = export_files.merge_index(tmp_path)
    assert [entry.name for entry in entries] == ["a", "b", "c"]
    assert export_files.read_index(tmp_path) == entries
    lists = tmp_path / export_files.LISTS
    assert [(lists / f"{name}.txt").read_text() for name in ("train", "val")] == ["b\n", "a\n"]
    assert (tmp_path / "truth" / export_files.LISTS / "train.txt").read_text() == "b\n"
    assert not list(tmp_path.glob("index.*.jsonl"))
    assert export_files.describe_entries(entries) == "2 of 3 images done; 1 skipped: no class is present"
    write(tmp_path, "c", rank=0)
    assert [entry.status for entry in export_files.merge_index(tmp_path)] == ["done"] * 3


def test_what_is_half_written_is_not_finished(tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    assert export_files.finished_names(tmp_path) == {"a", "b", "c"}
    (tmp_path / export_files.MASKS / "b.png").unlink()
    part = tmp_path / "index.0.jsonl"
    part.write_text(part.read_text()[:-20])
    assert export_files.finished_names(tmp_path) == {"a"}
    write(tmp_path, "c")  # on a line of its own
    assert export_files.finished_names(tmp_path) == {"a", "c"}
    assert export_files.finished_names(tmp_path / "nothing") == set()


def test_an_image_that_is_done_stays_so(tmp_path):
    write(tmp_path, "a")
    export_files.append_entry(tmp_path, skipped("a"))
    assert export_files.finished_names(tmp_path) == {"a"}


def test_an_export_goes_on_with_the_same_settings_only(tmp_path):
    for _ in range(2):
        export_files.begin_export(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat", "dog"])
    assert export_files.read_classes(tmp_path) == ["cat", "dog"]
    with pytest.raises(ValueError, match="other settings: method 'lrp', not 'rollout'"):
        export_files.begin_export(tmp_path, {"method": "rollout", "scales": (1, 0.5)}, ["cat", "dog"])
    with pytest.raises(ValueError, match="other classes"):
        export_files.begin_export(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat"])


def test_lines_that_are_damaged(tmp_path):
    write(tmp_path, "a")
    with (tmp_path / "index.jsonl").open("w") as file:
        file.write('{"name": "x"}\n[]\n' + json.dumps({"name": "y", "size": 3}) + "\n")
    assert [entry.name for entry in export_files.read_index(tmp_path)] == ["a"]


def test_names():
    assert export_files.image_name(7, "val") == "val_000007"
    assert export_files.image_name("a/b c", "val") == "a%2Fb%20c"


@pytest.mark.parametrize("field", ["name", "split"])
@pytest.mark.parametrize("value", ["../a", "/etc/a", "..", ".", "", "a\\b", "a/b", "a\0b", 3])
def test_an_index_names_no_file_of_another_folder(field, value, tmp_path):
    """Of each split a list is written, by the name that the index has for it."""
    folder = tmp_path / "export"
    write(folder, "a")
    line = {"name": "b", "split": "val", "classes": [], "size": [3, 3], "status": "done", "reason": "", field: value}
    with (folder / "index.0.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    assert [entry.name for entry in export_files.merge_index(folder)] == ["a"]
    assert {path.name for path in tmp_path.iterdir()} == {"export"}
    assert [path.name for path in (folder / export_files.LISTS).iterdir()] == ["train.txt"]
