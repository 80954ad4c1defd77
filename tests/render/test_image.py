import numpy as np
import pytest
import torch

from lrptrain.render import contact_sheet, enlarge, overlay, to_picture
from lrptrain.render.image import OUTLINE

CYAN = np.array(OUTLINE)


@pytest.fixture
def image():
    return torch.rand(3, 64, 48, generator=torch.Generator().manual_seed(0)) * 7 - 3


def saturation(picture):
    return np.ptp(picture.astype(int), axis=-1)


def test_the_picture_of_normalised_data_is_the_data():
    pixels = np.random.default_rng(0).integers(0, 256, (200, 180, 3), dtype=np.uint8)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    normalised = (torch.from_numpy(pixels) / 255 - torch.tensor(mean)) / torch.tensor(std)
    np.testing.assert_array_equal(to_picture(normalised.permute(2, 0, 1), mean=mean, std=std), pixels)


def test_without_mean_and_std_the_range_is_stretched(image):
    picture = to_picture(image)
    assert (picture.dtype, picture.min(), picture.max()) == (np.uint8, 0, 255)
    np.testing.assert_array_equal(picture, to_picture(image * 0.1 + 5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_any_dtype_grey_and_a_graph(dtype):
    ramp = torch.arange(0, 64).reshape(1, 8, 8).to(dtype)
    ramp.requires_grad_(dtype.is_floating_point)
    picture = to_picture(ramp)
    assert picture.shape == (160, 160, 3)
    assert np.all(saturation(picture) == 0)
    assert np.all(np.diff(picture[0, ::20, 0].astype(int)) > 0)


def test_a_constant_image_stays_as_it_is():
    assert np.all(to_picture(torch.zeros(3, 8, 8)) == 0)
    assert np.all(to_picture(torch.ones(3, 8, 8)) == 255)


@pytest.mark.parametrize(("size", "expected"), [((32, 32), (160, 160)), ((64, 48), (192, 144)), ((160, 8), (160, 8))])
def test_small_ones_are_enlarged_by_whole_numbers(size, expected):
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    large = enlarge(pixels)
    assert large.shape == expected
    np.testing.assert_array_equal(large[:: expected[0] // size[0], :: expected[0] // size[0]], pixels)


def test_relevance_colours_its_place_and_leaves_the_rest_to_see():
    grey = torch.full((3, 224, 224), 0.5)
    heat = torch.zeros(14, 14)
    heat[3, 10] = 2.0
    picture = overlay(grey, heat)
    where = saturation(picture)
    peak = np.unravel_index(where.argmax(), where.shape)
    assert 40 <= peak[0] < 72
    assert 152 <= peak[1] < 184
    assert np.all(where[100:] == 0)
    np.testing.assert_array_equal(picture[100:], to_picture(grey)[100:])


def test_the_scale_of_relevance_does_not_matter_and_opacity_does(image):
    heat = torch.rand(4, 4, generator=torch.Generator().manual_seed(1))
    picture = overlay(image, heat)
    assert np.abs(picture.astype(int) - overlay(image, heat * 1e-6)).max() <= 1
    assert np.abs(picture.astype(int) - overlay(image, heat, opacity=0.1)).max() > 20


def test_no_relevance_lays_nothing_over(image):
    nothing = overlay(image, torch.zeros(4, 4))
    plain = to_picture(image)
    assert np.abs(nothing.mean(axis=-1) - plain.mean(axis=-1)).max() <= 1
    assert 0 < saturation(nothing).mean() < saturation(plain).mean()
    np.testing.assert_array_equal(nothing, overlay(image, torch.full((4, 4), torch.nan)))
    for infinite in (torch.inf, -torch.inf):
        np.testing.assert_array_equal(nothing, overlay(image, torch.full((4, 4), infinite)))
    np.testing.assert_array_equal(nothing, overlay(image, torch.rand(64, 48), opacity=0.0))


def test_what_speaks_against_the_class_is_blue_and_what_speaks_for_it_is_not():
    heat = torch.zeros(8, 8)
    heat[1, 1] = 2.0
    heat[6, 6] = -1.0
    picture = overlay(torch.full((3, 160, 160), 0.5), heat).astype(int)
    where = saturation(picture)
    red, _, blue = picture.transpose(2, 0, 1)
    assert np.all((red - blue)[:60, :60][where[:60, :60] > 40] > 0)
    assert np.all((blue - red)[100:, 100:][where[100:, 100:] > 0] > 0)
    assert where[100:, 100:].max() > 40
    assert np.all(where[:60, 100:] == 0)


def test_both_signs_share_one_scale():
    """Relevance of half the size is as strong, whichever sign the larger has."""
    grey = torch.full((3, 160, 160), 0.5)
    heat = torch.zeros(8, 8)
    heat[1, 1] = 1.0
    weaker = overlay(grey, heat - 2 * heat.flip(0))
    alone = overlay(grey, heat + 2 * heat.flip(0))
    np.testing.assert_array_equal(weaker[:60], alone[:60])
    assert np.abs(weaker[100:].astype(int) - alone[100:]).max() > 100
    strongest = [np.ptp(overlay(grey, sign * heat)[:60].astype(int), axis=-1).max() for sign in (1, -1)]
    assert min(strongest) > 60


def outlined(mask):
    picture = overlay(torch.ones(3, 32, 32), torch.zeros(2, 2), mask)
    return np.all(picture == CYAN, axis=-1)


def test_the_outline_is_a_thin_line_around_the_evidence():
    mask = np.zeros((32, 32), np.uint8)
    mask[8:16, 4:20] = 1
    line = outlined(mask)
    assert line.sum() == 2 * (40 + 80) - 4
    rows, columns = np.nonzero(line)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (40, 79, 20, 99)


def test_ignored_pixels_have_no_outline_and_masks_may_be_boolean():
    mask = np.zeros((32, 32), np.uint8)
    mask[8:16, 4:20] = 1
    bordered = mask.copy()
    bordered[20:30] = 255
    np.testing.assert_array_equal(outlined(bordered), outlined(mask))
    np.testing.assert_array_equal(outlined(torch.from_numpy(mask).bool()), outlined(mask))
    assert not outlined(np.full((32, 32), 255, np.uint8)).any()


def test_what_is_no_image_is_refused():
    with pytest.raises(ValueError, match=r"not \(2, 8, 8\)"):
        to_picture(torch.zeros(2, 8, 8))
    with pytest.raises(ValueError, match="both mean and std"):
        to_picture(torch.zeros(3, 8, 8), mean=[0.0] * 3)


def test_a_sheet_shows_every_picture_once_over_its_caption():
    colors = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255)], np.uint8)
    pictures = [np.full((100 + 20 * i, 160, 3), color, np.uint8) for i, color in enumerate(colors)]
    sheet = contact_sheet(pictures, ["one", "a caption that is far too long for a single line of it", ""], columns=2)
    for picture, color in zip(pictures, colors, strict=True):
        rows, columns = np.nonzero(np.all(sheet == color, axis=-1))
        assert len(rows) == picture.shape[0] * picture.shape[1]
        assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == picture.shape[:2]
    blue = np.nonzero(np.all(sheet == colors[2], axis=-1))
    assert blue[0].min() > 120
    assert blue[1].min() < 160  # in the second row, the first column
    ink = np.all(sheet < 80, axis=-1)
    assert ink[104:126, :160].sum() > 20
    assert ink[150:165, 170:].sum() > 20  # the long caption's second line


def test_a_long_word_is_cut_to_the_width():
    picture = np.zeros((20, 100, 3), np.uint8)
    sheet = contact_sheet([picture], ["x" * 200])
    assert sheet.shape[1] < 120
    assert np.all(sheet[24:, 106:] == 255)


def test_a_sheet_needs_pictures_and_as_many_captions():
    with pytest.raises(ValueError, match="at least one"):
        contact_sheet([], [])
    with pytest.raises(ValueError, match="zip"):
        contact_sheet([np.zeros((9, 9, 3), np.uint8)], ["a", "b"])
