import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig
from lrptrain.segmentation.pipeline import ExportedMasks


@pytest.fixture
def folder(tmp_path):
    """Four images of 8 x 12 with masks of three stripes 0, 2, 255 in VOC's layout; the palette is only for show."""
    for name in ("images", export_files.MASKS, export_files.LISTS):
        (tmp_path / name).mkdir(parents=True)
    stripes = np.repeat(np.array([[0, 2, 255]], dtype=np.uint8), 4, axis=1).repeat(8, axis=0)
    for level, name in enumerate("abcd"):
        Image.fromarray(np.full((8, 12), 10 * level, dtype=np.uint8)).save(tmp_path / "images" / f"{name}.jpg")
        mask = Image.fromarray(stripes)
        mask.putpalette([level % 256 for level in range(768)])
        mask.save(tmp_path / export_files.MASKS / f"{name}.png")
    (tmp_path / export_files.LISTS / "train.txt").write_text("a\nb\nc\n")
    return tmp_path


def ready(folder, split="train", classes=2, config=PseudoMaskConfig(), size=(8, 12), **options):  # noqa: B008
    return ExportedMasks(folder, folder / "images", split, config, classes, size, **options)


def test_an_image_and_its_mask(folder):
    data = ready(folder, config=PseudoMaskConfig(mean=(0.0,) * 3, std=(0.5,) * 3))
    assert len(data) == 3
    assert torch.allclose(data[2]["image"], torch.full((3, 8, 12), 40 / 255), atol=1e-6)
    assert data[2]["mask"].tolist() == [[0] * 4 + [2] * 4 + [255] * 4] * 8
    assert torch.allclose(ready(folder)[1]["image"], torch.full((3, 8, 12), 20 / 255 - 1), atol=1e-6)


def test_both_are_resized_and_move_in_training(folder):
    assert ready(folder, size=(4, 6))[0]["mask"].tolist() == [[0, 0, 2, 2, 255, 255]] * 4
    torch.manual_seed(0)
    moved = ready(folder, smallest=0.3)
    assert len({moved[0]["mask"].numpy().tobytes() for _ in range(8)}) > 2


def test_a_list_that_is_missing_is_empty(folder):
    assert len(ready(folder, "val")) == 0


def test_masks_of_other_classes_are_named(folder):
    with pytest.raises(ValueError, match=r"a\.png holds \[2\]"):
        ready(folder, classes=1)[0]
