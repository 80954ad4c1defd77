import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.data.pictures import read_mask, write_mask


def test_masks_have_the_palette_of_voc(tmp_path):
    path = tmp_path / "mask.png"
    write_mask(path, torch.tensor([[0, 1, 2, 15, 20, 255]], dtype=torch.uint8))
    with Image.open(path) as picture:
        assert picture.mode == "P"
        colours = [picture.convert("RGB").getpixel((x, 0)) for x in range(6)]
    # Background, aeroplane, bicycle, person, monitor and the ignored border, as in VOC's masks.
    assert colours == [(0, 0, 0), (128, 0, 0), (0, 128, 0), (192, 128, 128), (0, 64, 128), (224, 224, 192)]


def test_masks_that_do_not_fit(tmp_path):
    path = tmp_path / "mask.png"
    with pytest.raises(ValueError, match="cannot read the picture"):
        read_mask(path)
    Image.new("RGB", (4, 3), "red").save(path)
    with pytest.raises(ValueError, match="this picture is RGB: save class numbers"):
        read_mask(path)
    Image.fromarray(np.full((3, 4), 7, np.uint8)).save(path)  # grey
    assert read_mask(path, (3, 4)).unique().tolist() == [7]
    assert read_mask(path, (6, 4), resize=True).shape == (6, 4)
    with pytest.raises(ValueError, match=r"has size \(3, 4\), expected \(4, 4\)"):
        read_mask(path, (4, 4))
    with pytest.raises(ValueError, match=r"holds \[7\]: not 0 for background, 1 to 3"):
        read_mask(path, classes=3)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="cannot read the picture"):
        read_mask(path)
