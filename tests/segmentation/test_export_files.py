import io
import json
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.data.pictures import read_mask
from lrptrain.segmentation import export_files
from lrptrain.segmentation.export_files import ExportedImage


def exported(name="cat 1", split="train", truth=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    seeds, mask, true = (torch.randint(0, 3, (24, 32), generator=generator).to(torch.uint8) for _ in range(3))
    mask[0] = 255
    maps, image = torch.rand(2, 24, 32, generator=generator), torch.rand(3, 24, 32, generator=generator)
    return ExportedImage(name, split, (0, 2), maps, seeds, seeds, mask, image, true if truth else None)


def test_what_is_written_is_read(tmp_path):
    given = exported()
    entry = export_files.write_image_files(tmp_path, given)
    assert entry.name == "cat 1"
    for kind, mask in (
        (export_files.SEEDS, given.seeds),
        (export_files.MASKS, given.mask),
        (export_files.TRUTH, given.truth),
    ):
        assert torch.equal(read_mask(tmp_path / kind / f"{entry.name}.png", (24, 32), 2), mask)
    maps, classes = export_files.read_maps(tmp_path, entry.name)
    assert classes == (0, 2)
    torch.testing.assert_close(maps, given.maps, rtol=0, atol=1e-3)  # half precision
    with Image.open(tmp_path / export_files.JPEG_IMAGES / "cat 1.jpg") as picture:
        assert picture.size == (32, 24)
    assert export_files.read_index(tmp_path) == [entry]
    assert not list(tmp_path.rglob("*.part"))


def test_maps_are_reduced(tmp_path):
    given = exported()
    entry = export_files.write_image_files(tmp_path, given, map_size=(6, 8))
    maps, _ = export_files.read_maps(tmp_path, entry.name)
    assert maps.shape == (2, 6, 8)
    torch.testing.assert_close(maps.mean((1, 2)), given.maps.mean((1, 2)), rtol=0, atol=0.02)
    assert maps.max() <= 1
    export_files.write_image_files(tmp_path, given, map_size=(48, 64))
    assert export_files.read_maps(tmp_path, entry.name)[0].shape == (2, 24, 32)


def test_parts_of_two_processes_are_merged(tmp_path):
    export_files.write_image_files(tmp_path, exported("b"), rank=0)
    export_files.write_image_files(tmp_path, exported("a", "val"), rank=1)
    export_files.append_entry(
        tmp_path, export_files.skipped_entry("c", "train", (24, 32), "no class is present"), rank=1
    )
    entries = export_files.merge_index(tmp_path)
    assert [entry.name for entry in entries] == ["a", "b", "c"]
    assert export_files.read_index(tmp_path) == entries
    lists = tmp_path / export_files.LISTS
    assert [(lists / f"{name}.txt").read_text() for name in ("train", "val")] == ["b\n", "a\n"]
    assert (tmp_path / "truth" / export_files.LISTS / "train.txt").read_text() == "b\n"
    assert not list(tmp_path.glob("index.*.jsonl"))
    assert export_files.describe_entries(entries) == "2 of 3 images done; 1 skipped: no class is present"
    export_files.write_image_files(tmp_path, exported("c"), rank=0)
    assert [entry.status for entry in export_files.merge_index(tmp_path)] == ["done"] * 3


def test_what_is_half_written_is_not_finished(tmp_path):
    for name in ("a", "b", "c"):
        export_files.write_image_files(tmp_path, exported(name))
    assert export_files.finished_names(tmp_path) == {"a", "b", "c"}
    (tmp_path / export_files.MASKS / "b.png").unlink()
    part = tmp_path / "index.0.jsonl"
    part.write_text(part.read_text()[:-20])
    assert export_files.finished_names(tmp_path) == {"a"}
    export_files.write_image_files(tmp_path, exported("c"))  # on a line of its own
    assert export_files.finished_names(tmp_path) == {"a", "c"}
    assert export_files.finished_names(tmp_path / "nothing") == set()


def test_an_image_that_is_done_stays_so(tmp_path):
    export_files.write_image_files(tmp_path, exported("a"))
    export_files.append_entry(tmp_path, export_files.skipped_entry("a", "train", (24, 32), "no class is present"))
    assert export_files.finished_names(tmp_path) == {"a"}


def test_an_export_goes_on_with_the_same_settings_only(tmp_path):
    for _ in range(2):
        export_files.begin_export(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat", "dog"])
    assert export_files.read_classes(tmp_path) == ["cat", "dog"]
    with pytest.raises(ValueError, match="other settings: method 'lrp', not 'rollout'"):
        export_files.begin_export(tmp_path, {"method": "rollout", "scales": (1, 0.5)}, ["cat", "dog"])
    with pytest.raises(ValueError, match="other classes"):
        export_files.begin_export(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat"])


def test_maps_and_lines_that_are_damaged(tmp_path):
    export_files.write_image_files(tmp_path, exported("a"))
    path = tmp_path / export_files.MAPS / "a.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match="cannot read the maps"):
        export_files.read_maps(tmp_path, "a")
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
    export_files.write_image_files(folder, exported("a"))
    line = {"name": "b", "split": "val", "classes": [], "size": [3, 3], "status": "done", "reason": "", field: value}
    with (folder / "index.0.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    assert [entry.name for entry in export_files.merge_index(folder)] == ["a"]
    assert {path.name for path in tmp_path.iterdir()} == {"export"}
    assert [path.name for path in (folder / export_files.LISTS).iterdir()] == ["train.txt"]


def test_maps_that_unpack_to_much_are_not_read(tmp_path):
    entry = export_files.write_image_files(tmp_path, exported())
    path = tmp_path / export_files.MAPS / f"{entry.name}.npz"
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**9,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("maps.npy", "w") as file:
        file.write(head.getvalue())
        for _ in range(300):
            file.write(bytes(2**20))
    assert path.stat().st_size < 10**6
    with pytest.raises(ValueError, match="it holds more than 268 MB"):
        export_files.read_maps(tmp_path, entry.name)
    np.savez(path, maps=np.array([{}], dtype=object), classes=np.zeros(1))
    with pytest.raises(ValueError, match="cannot read the maps"):  # an object would have to be unpickled
        export_files.read_maps(tmp_path, entry.name)
