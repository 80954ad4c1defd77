import json

import pytest
import torch
from PIL import Image

from lrptrain.segmentation import files
from lrptrain.segmentation.files import Exported
from lrptrain.segmentation.mask_files import read_mask


def exported(name="cat 1", split="train", truth=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    seeds, mask, true = (torch.randint(0, 3, (24, 32), generator=generator).to(torch.uint8) for _ in range(3))
    mask[0] = 255
    maps, image = torch.rand(2, 24, 32, generator=generator), torch.rand(3, 24, 32, generator=generator)
    return Exported(name, split, (0, 2), maps, seeds, seeds, mask, image, true if truth else None)


def test_what_is_written_is_read(tmp_path):
    given = exported()
    entry = files.write(tmp_path, given)
    assert entry.name == "cat 1"
    for kind, mask in ((files.SEEDS, given.seeds), (files.MASKS, given.mask), (files.TRUTH, given.truth)):
        assert torch.equal(read_mask(tmp_path / kind / f"{entry.name}.png", (24, 32), 2), mask)
    maps, classes = files.read_maps(tmp_path, entry.name)
    assert classes == (0, 2)
    torch.testing.assert_close(maps, given.maps, rtol=0, atol=1e-3)  # half precision
    with Image.open(tmp_path / files.IMAGES / "cat 1.jpg") as picture:
        assert picture.size == (32, 24)
    assert files.read_index(tmp_path) == [entry]
    assert not list(tmp_path.rglob("*.part"))


def test_maps_are_reduced(tmp_path):
    given = exported()
    entry = files.write(tmp_path, given, map_size=(6, 8))
    maps, _ = files.read_maps(tmp_path, entry.name)
    assert maps.shape == (2, 6, 8)
    torch.testing.assert_close(maps.mean((1, 2)), given.maps.mean((1, 2)), rtol=0, atol=0.02)
    assert maps.max() <= 1
    files.write(tmp_path, given, map_size=(48, 64))
    assert files.read_maps(tmp_path, entry.name)[0].shape == (2, 24, 32)


def test_parts_of_two_processes_are_merged(tmp_path):
    files.write(tmp_path, exported("b"), rank=0)
    files.write(tmp_path, exported("a", "val"), rank=1)
    files.add(tmp_path, files.skipped("c", "train", (24, 32), "no class is present"), rank=1)
    entries = files.merge(tmp_path)
    assert [entry.name for entry in entries] == ["a", "b", "c"]
    assert files.read_index(tmp_path) == entries
    lists = tmp_path / files.LISTS
    assert [(lists / f"{name}.txt").read_text() for name in ("train", "val")] == ["b\n", "a\n"]
    assert (tmp_path / "truth" / files.LISTS / "train.txt").read_text() == "b\n"
    assert not list(tmp_path.glob("index.*.jsonl"))
    assert files.counted(entries) == "2 of 3 images done; 1 skipped: no class is present"
    files.write(tmp_path, exported("c"), rank=0)
    assert [entry.status for entry in files.merge(tmp_path)] == ["done"] * 3


def test_what_is_half_written_is_not_finished(tmp_path):
    for name in ("a", "b", "c"):
        files.write(tmp_path, exported(name))
    assert files.finished(tmp_path) == {"a", "b", "c"}
    (tmp_path / files.MASKS / "b.png").unlink()
    part = tmp_path / "index.0.jsonl"
    part.write_text(part.read_text()[:-20])
    assert files.finished(tmp_path) == {"a"}
    files.write(tmp_path, exported("c"))  # on a line of its own
    assert files.finished(tmp_path) == {"a", "c"}
    assert files.finished(tmp_path / "nothing") == set()


def test_an_image_that_is_done_stays_so(tmp_path):
    files.write(tmp_path, exported("a"))
    files.add(tmp_path, files.skipped("a", "train", (24, 32), "no class is present"))
    assert files.finished(tmp_path) == {"a"}


def test_an_export_goes_on_with_the_same_settings_only(tmp_path):
    for _ in range(2):
        files.begin(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat", "dog"])
    assert files.read_classes(tmp_path) == ["cat", "dog"]
    with pytest.raises(ValueError, match="other settings: method 'lrp', not 'rollout'"):
        files.begin(tmp_path, {"method": "rollout", "scales": (1, 0.5)}, ["cat", "dog"])
    with pytest.raises(ValueError, match="other classes"):
        files.begin(tmp_path, {"method": "lrp", "scales": (1, 0.5)}, ["cat"])


def test_maps_and_lines_that_are_damaged(tmp_path):
    files.write(tmp_path, exported("a"))
    path = tmp_path / files.MAPS / "a.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match="cannot read the maps"):
        files.read_maps(tmp_path, "a")
    with (tmp_path / "index.jsonl").open("w") as file:
        file.write('{"name": "x"}\n[]\n' + json.dumps({"name": "y", "size": 3}) + "\n")
    assert [entry.name for entry in files.read_index(tmp_path)] == ["a"]


def test_names():
    assert files.image_name(7, "val") == "val_000007"
    assert files.image_name("a/b c", "val") == "a%2Fb%20c"
