import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.segmentation.folder import SegmentationFolder


@pytest.fixture
def folder(tmp_path):
    """Four images of 8 x 12 with masks of three stripes 0, 2, 255 in VOC's layout; the palette is only for show."""
    for name in ("images", "voc/SegmentationClass", "voc/ImageSets/Segmentation"):
        (tmp_path / name).mkdir(parents=True)
    stripes = np.repeat(np.array([[0, 2, 255]], dtype=np.uint8), 4, axis=1).repeat(8, axis=0)
    for level, name in enumerate("abcd"):
        Image.fromarray(np.full((8, 12), 10 * level, dtype=np.uint8)).save(tmp_path / "images" / f"{name}.png")
        mask = Image.fromarray(stripes)
        mask.putpalette([level % 256 for level in range(768)])
        mask.save(tmp_path / "voc" / "SegmentationClass" / f"{name}.png")
    for split, names in {"train": "a\nb\n", "val": "c\n", "test": "d\n"}.items():
        (tmp_path / "voc" / "ImageSets" / "Segmentation" / f"{split}.txt").write_text(names)
    return tmp_path


def ready(folder, **arguments):
    data = SegmentationFolder(
        str(folder / "images"), str(folder / "voc"), **{"classes": 2, "size": (8, 12), **arguments}
    )
    data.setup()
    return data


def test_a_batch_has_images_masks_and_names(folder):
    batch = next(iter(ready(folder, mean=(0.0,) * 3, std=(0.5,) * 3).val_dataloader()))
    assert torch.allclose(batch["image"], torch.full((1, 3, 8, 12), 40 / 255))
    assert batch["mask"][0].tolist() == [[0] * 4 + [2] * 4 + [255] * 4] * 8
    assert batch["sample_id"] == ["c"]


def test_training_masks_may_come_from_another_folder_and_are_augmented(folder):
    (folder / "voc").rename(folder / "true")
    for name in ("SegmentationClass", "ImageSets/Segmentation"):
        (folder / "pseudo" / name).mkdir(parents=True)
    (folder / "pseudo" / "ImageSets" / "Segmentation" / "train.txt").write_text("d\n")
    Image.fromarray(np.full((8, 12), 1, dtype=np.uint8)).save(folder / "pseudo" / "SegmentationClass" / "d.png")
    images, pseudo, true = (str(folder / name) for name in ("images", "pseudo", "true"))
    data = SegmentationFolder(images, pseudo, 2, true_masks=true, size=(4, 6))
    data.setup()
    train, val = next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))
    assert train["mask"].unique().tolist() == [1]
    assert train["mask"].shape == (1, 4, 6)
    assert val["mask"].unique().tolist() == [0, 2, 255]


def test_unusable_pairs_are_left_out_and_counted(folder):
    masks = folder / "voc" / "SegmentationClass"
    with (folder / "voc" / "ImageSets" / "Segmentation" / "train.txt").open("a") as file:
        file.write("e\nf\ng\n")
    (masks / "a.png").write_bytes((masks / "a.png").read_bytes()[:60])  # half-written
    Image.new("L", (5, 5)).save(masks / "c.png")
    (masks / "d.png").unlink()
    Image.new("RGB", (12, 8)).save(masks / "f.png")
    Image.new("RGB", (12, 8)).save(folder / "images" / "f.png")
    Image.new("L", (12, 8)).save(masks / "g.png")
    (folder / "images" / "g.png").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="6 images are left out"):
        data = ready(folder)
    assert [len(data.splits[name]) for name in ("train", "val", "test")] == [1, 0, 0]
    expected = {"a": "a.png", "c": "size", "d": "no mask", "e": "no image", "f": "one channel", "g": "g.png"}
    assert all(word in data.skipped[name] for name, word in expected.items())


def test_masks_of_another_palette_are_named(folder):
    data = ready(folder, classes=1)
    with pytest.raises(ValueError, match=r"[ab]\.png holds \[2\]"):
        next(iter(data.train_dataloader()))


def test_without_a_list_or_any_mask_there_is_one_clear_error(folder):
    for path in (folder / "voc" / "SegmentationClass").glob("*.png"):
        path.unlink()
    with pytest.raises(ValueError, match="no training image has a usable mask"):
        ready(folder)
    (folder / "voc" / "ImageSets" / "Segmentation" / "train.txt").unlink()
    with pytest.raises(FileNotFoundError, match="list of the training images"):
        ready(folder)
