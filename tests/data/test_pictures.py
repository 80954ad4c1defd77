import os

import numpy as np
import pytest
import torch
from hostile import png_of
from PIL import Image

from lrptrain.data.pictures import (
    find_pictures,
    open_picture,
    read_mask,
    stem,
    to_image,
    to_values,
    write_mask,
)

PNG = b"\x89PNG\r\n\x1a\n"
RED = np.array([200, 40, 10], dtype=np.uint8)


def saved(path, array_or_picture):
    picture = array_or_picture if isinstance(array_or_picture, Image.Image) else Image.fromarray(array_or_picture)
    picture.save(path)
    return path


def test_stem_drops_only_image_endings():
    assert stem("a/b.JPG") == "a/b"
    assert stem("cat.v2") == "cat.v2"
    assert stem("cat.v2.png") == "cat.v2"


def test_find_pictures_goes_by_relative_name_and_refuses_doubles(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "sub/a.png"):
        saved(tmp_path / name, np.zeros((2, 2), np.uint8))
    (tmp_path / "notes.txt").write_text("no picture")
    assert find_pictures(tmp_path) == {"a": tmp_path / "a.png", "sub/a": tmp_path / "sub/a.png"}
    saved(tmp_path / "a.bmp", np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match=r"a\.bmp.*a\.png.*same name"):
        find_pictures(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        find_pictures(tmp_path / "absent")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK"])
def test_coloured_modes_become_the_same_rgb(tmp_path, mode):
    picture = Image.fromarray(np.tile(RED, (6, 4, 1))).convert(mode, palette=Image.Palette.ADAPTIVE)
    path = saved(tmp_path / ("x.tif" if mode == "CMYK" else "x.png"), picture)
    image = to_image(open_picture(path), (3, 2))
    assert image.shape == (3, 3, 2)
    assert image.dtype == torch.float32
    assert torch.allclose(image, torch.from_numpy(RED / 255).float()[:, None, None].expand(3, 3, 2), atol=0.01)


@pytest.mark.parametrize(
    "array",
    [np.full((4, 4), 64, np.uint8), np.full((4, 4), 64 * 257, np.uint16), np.full((4, 4), 64 / 255, np.float32)],
)
def test_grey_of_any_depth_becomes_the_same_rgb(tmp_path, array):
    image = to_image(open_picture(saved(tmp_path / "x.tif", array)), (4, 4))
    assert torch.allclose(image, torch.full((3, 4, 4), 64 / 255), atol=1e-6)


def test_black_and_white_pictures_and_transparency(tmp_path):
    bits = to_image(open_picture(saved(tmp_path / "bits.png", np.eye(4, dtype=bool))), (4, 4))
    assert torch.equal(bits, torch.eye(4).expand(3, 4, 4))
    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    assert torch.equal(to_image(open_picture(saved(tmp_path / "clear.png", clear)), (4, 4)), torch.ones(3, 4, 4))


def test_size_is_height_by_width():
    halves = np.zeros((10, 20), dtype=np.uint8)
    halves[:, 10:] = 255
    image = to_image(Image.fromarray(halves), (5, 8))
    assert image.shape == (3, 5, 8)
    assert (image[:, :, :3] == 0).all()
    assert (image[:, :, 5:] == 1).all()


def test_values_of_a_mask_survive_resizing_and_palettes(tmp_path):
    values = np.kron(np.array([[1, 2], [3, 255]], dtype=np.uint8), np.ones((6, 6), dtype=np.uint8))
    palette = Image.fromarray(values)
    palette.putpalette([7, 8, 9] * 256)
    for picture in (Image.fromarray(values), palette):
        path = saved(tmp_path / "mask.png", picture)
        assert to_values(open_picture(path), (2, 2)).tolist() == [[1, 2], [3, 255]]
    assert to_values(Image.fromarray(np.eye(4, dtype=bool)), (4, 4)).tolist() == np.eye(4).tolist()
    with pytest.raises(ValueError, match="one channel"):
        to_values(Image.fromarray(np.zeros((4, 4, 3), np.uint8)), (2, 2))


@pytest.mark.parametrize(
    "damage", [lambda data: b"no picture at all", lambda data: data[: len(data) // 2], lambda data: b""]
)
def test_a_damaged_file_is_named(tmp_path, damage):
    path = saved(tmp_path / "broken.png", np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"cannot read the picture .*broken\.png"):
        open_picture(path)


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


@pytest.mark.parametrize(("content", "says"), [
    (png_of(60_000, 60_000), "exceeds limit"),
    (png_of(12_000, 12_000), "it has 12000 x 12000 pixels, more than 134217728"),
    (png_of(100, 100), "truncated"),
    (png_of(0, 3), ""),
    (PNG, ""),
    (b"", "cannot identify"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "cannot identify"),  # for Ghostscript to run
])  # fmt: skip
def test_what_unpacks_to_much_is_one_line(content, says, tmp_path):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read the picture .*x\.png: ") as refused:
        open_picture(tmp_path / "x.png")
    assert says in str(refused.value)


def test_a_large_picture_is_no_warning(tmp_path):
    """Pillow warns from 89 million pixels on, which is an error where warnings are errors."""
    Image.new("1", (10_000, 9_000)).save(tmp_path / "x.png")
    assert open_picture(tmp_path / "x.png").size == (10_000, 9_000)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_device_is_no_picture(make, tmp_path):
    make(tmp_path / "x.png")
    with pytest.raises(ValueError, match="is no regular file"):
        open_picture(tmp_path / "x.png")
