import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.segmentation.folder import SegmentationFolder, random_windows


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


def scene() -> tuple[torch.Tensor, torch.Tensor]:
    """Images whose first channel is the mask."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.randint(0, 3, (5, 4, 6), generator=generator).to(torch.uint8)
    mask = mask.repeat_interleave(8, 1).repeat_interleave(8, 2)
    mask[mask == 2] = 255
    return mask[:, None].double().repeat(1, 3, 1, 1), mask


def test_image_and_mask_move_together():
    image, mask = scene()
    moved, regions = random_windows(image, mask, 0.4, torch.Generator().manual_seed(1))
    flat = moved[:, 0] == moved[:, 0].round()  # away from edges, where the image is interpolated
    assert flat.float().mean() > 0.4
    assert torch.equal(moved[:, 0][flat].to(torch.uint8), regions[flat])
    assert set(regions.unique().tolist()) <= {0, 1, 255}
    assert not torch.equal(regions, mask)


def test_a_whole_window_is_the_image_or_its_mirror_image():
    image, mask = scene()
    moved, regions = random_windows(image, mask, 1.0, torch.Generator().manual_seed(2))
    same = [torch.equal(one, other) for one, other in zip(regions, mask, strict=True)]
    mirrored = [torch.equal(one, other.flip(-1)) for one, other in zip(regions, mask, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert any(same)
    assert any(mirrored)
    flip = torch.tensor(mirrored)[:, None, None, None]
    assert torch.allclose(moved, torch.where(flip, image.flip(-1), image), atol=1e-9)


def test_bad_arguments_are_refused():
    image, mask = scene()
    with pytest.raises(ValueError, match="smallest"):
        random_windows(image, mask, 0.0)
    with pytest.raises(ValueError, match="as the images"):
        random_windows(image, mask[:, :4])
