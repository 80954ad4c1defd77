from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.data import ImageMaskFolder

PETS = Path(__file__).parents[3] / "shared" / "data" / "oxford_pets3"


@pytest.fixture
def folder(tmp_path):
    """Six images of 8 x 12, image k of grey level 10 k; masks of three stripes 1, 2, 3, except for image e."""
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    trimap = np.repeat(np.array([[1, 2, 3]], dtype=np.uint8), 4, axis=1).repeat(8, axis=0)
    for level, name in enumerate("abcdef"):
        Image.fromarray(np.full((8, 12), 10 * level, dtype=np.uint8)).save(tmp_path / "images" / f"{name}.png")
        if name != "e":
            Image.fromarray(trimap).save(tmp_path / "masks" / f"{name}.png")
    rows = ["a,dog,train,0", "b.png,cat,train,1", "c,bird,train,1", "d,cat,val,0", "e,dog,val,3", "f,dog,test,2"]
    (tmp_path / "labels.csv").write_text("\n".join(["name,label,split,place", *rows]))
    return tmp_path


def ready(root, **arguments):
    data = ImageMaskFolder(str(root), **{"size": (8, 12), **arguments})
    data.setup()
    return data


def test_a_batch_has_images_masks_labels_groups_and_ids(folder):
    data = ready(folder, group_column="place", mean=(0.0,) * 3, std=(1.0,) * 3)
    batch = next(iter(data.val_dataloader()))
    assert data.class_names == ["bird", "cat", "dog"]
    assert data.num_classes == 3
    assert torch.allclose(batch["image"], torch.tensor([30.0, 40.0])[:, None, None, None].expand(2, 3, 8, 12) / 255)
    assert batch["label"].tolist() == [1, 2]
    assert batch["group"].tolist() == [0, 3]
    assert batch["sample_id"].tolist() == [0, 1]
    assert batch["mask"].dtype == torch.uint8
    assert batch["mask"][0].tolist() == [[1] * 4 + [0] * 4 + [255] * 4] * 8
    assert (batch["mask"][1] == 255).all()


def test_images_are_normalised_per_channel(folder):
    data = ready(folder, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    pixels = next(iter(data.test_dataloader()))["image"][0, :, 0, 0]
    expected = (50 / 255 - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([0.5, 0.25, 2.0])
    assert torch.allclose(pixels, expected)


def test_which_mask_values_count_can_be_chosen(folder):
    data = ready(folder, evidence_values=(2, 3), ignore_values=())
    assert next(iter(data.test_dataloader()))["mask"][0, 0].tolist() == [0] * 4 + [1] * 8
    with pytest.raises(ValueError, match=r"\[3\] cannot be both"):
        ImageMaskFolder(str(folder), evidence_values=(1, 3))


def test_labels_choose_and_order_the_classes(folder):
    data = ready(folder, labels=["dog", "cat"], batch_size=8)
    assert data.class_names == ["dog", "cat"]
    batch = next(iter(data.train_dataloader()))
    assert sorted(batch["label"].tolist()) == [0, 1]
    assert "group" not in batch


def test_split_names_can_be_mapped(folder):
    data = ready(folder, splits=("train", "test", "test"))
    assert (
        next(iter(data.val_dataloader()))["label"].tolist()
        == next(iter(data.test_dataloader()))["label"].tolist()
        == [2]
    )


def test_images_may_have_any_size_and_none_need_have_a_mask(folder):
    Image.new("RGBA", (31, 17)).save(folder / "images" / "d.png")
    data = ready(folder, masks=None, size=6)
    batch = next(iter(data.val_dataloader()))
    assert batch["image"].shape == (2, 3, 6, 6)
    assert (batch["mask"] == 255).all()


def test_workers_give_the_same_batches(folder):
    batches = [next(iter(ready(folder, num_workers=workers).val_dataloader())) for workers in (0, 1)]
    assert all(torch.equal(batches[0][key], batches[1][key]) for key in batches[0])


def test_what_is_missing_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        ready(folder, table="absent.csv")
    with pytest.raises(FileNotFoundError, match="pictures"):
        ready(folder, images="pictures")
    with pytest.raises(ValueError, match="breed"):
        ready(folder, label_column="breed")
    with pytest.raises(ValueError, match="no row has split='dev'"):
        ready(folder, splits=("train", "dev", "test")).val_dataloader()
    (folder / "images" / "c.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 names, such as \['c'\]"):
        ready(folder)


def test_masks_that_match_nothing_or_differ_in_size_are_refused(folder):
    (folder / "others").mkdir()
    with pytest.raises(ValueError, match="mask for none"):
        ready(folder, masks="others")
    Image.new("L", (12, 9)).save(folder / "masks" / "d.png")
    with pytest.raises(ValueError, match=r"d\.png has size \(12, 9\).*\(12, 8\)"):
        next(iter(ready(folder).val_dataloader()))


def test_a_damaged_image_and_a_wordy_group_are_named(folder):
    with pytest.raises(ValueError, match="'label' must be an integer, got 'dog'"):
        ready(folder, group_column="label")
    (folder / "images" / "d.png").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"d\.png"):
        next(iter(ready(folder).val_dataloader()))


@pytest.mark.skipif(not PETS.is_dir(), reason="needs the pets in ../shared/data/oxford_pets3")
def test_real_pets_and_their_trimaps():
    data = ready(
        PETS,
        table="split.csv",
        masks="trimaps",
        label_column="breed",
        splits=("train", "test", "test"),
        size=64,
        batch_size=105,
    )
    assert len(data.splits["train"]), len(data.splits["val"]) == (195, 105)
    batch = next(iter(data.val_dataloader()))
    assert batch["label"].bincount().tolist() == [35, 35, 35]
    assert set(batch["mask"].unique().tolist()) == {0, 1, 255}
    assert 0.2 < (batch["mask"] == 1).float().mean() < 0.35
    assert batch["image"].min() >= -1
    assert batch["image"].max() <= 1


def test_one_split_can_be_divided_into_training_and_validation(folder):
    rows = [f"{name},{label},all" for name, label in zip("abcdef", ["dog", "cat"] * 3, strict=True)]
    (folder / "labels.csv").write_text("\n".join(["name,label,split", *rows]))
    data = ready(folder, splits=("all", "all", "test"), val_share=1 / 3, seed=3)
    parts = [{sample.image.stem for sample in data.splits[split].samples} for split in ("train", "val")]
    assert parts[0] | parts[1] == set("abcdef")
    assert not parts[0] & parts[1]
    assert sorted(sample.label for sample in data.splits["val"].samples) == [0, 1]
    again = ready(folder, splits=("all", "all", "test"), val_share=1 / 3, seed=3)
    assert {sample.image.stem for sample in again.splits["val"].samples} == parts[1]
