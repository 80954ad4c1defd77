import numpy as np
import pytest
import torch

from lrptrain.render import beside, contact_sheet, enlarge, overlay, titled_pair, to_picture
from lrptrain.render.colors import NEGATIVE, POSITIVE
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
    tensors = {"mean": torch.tensor(mean), "std": torch.tensor(std)}
    np.testing.assert_array_equal(to_picture(normalised.permute(2, 0, 1), **tensors), pixels)


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


def test_relevance_colours_its_place_and_leaves_the_rest_grey():
    grey = torch.full((3, 224, 224), 0.5)
    heat = torch.zeros(14, 14)
    heat[3, 10] = 2.0
    picture = overlay(grey, heat)
    where = saturation(picture)
    peak = np.unravel_index(where.argmax(), where.shape)
    assert 40 <= peak[0] < 72
    assert 152 <= peak[1] < 184
    assert np.all(where[100:] == 0)
    assert np.all(picture[100:] == round(185 + 70 * 128 / 255))  # a light grey of the image's own


def test_the_scale_of_relevance_does_not_matter_and_opacity_does(image):
    heat = torch.rand(4, 4, generator=torch.Generator().manual_seed(1))
    picture = overlay(image, heat)
    assert np.abs(picture.astype(int) - overlay(image, heat * 1e-6)).max() <= 1
    assert np.abs(picture.astype(int) - overlay(image, heat, opacity=0.1)).max() > 20


def test_no_relevance_lays_nothing_over(image):
    nothing = overlay(image, torch.zeros(4, 4))
    plain = to_picture(image)
    assert np.abs(nothing.mean(axis=-1) - (185 + 70 / 255 * plain.mean(axis=-1))).max() <= 1
    assert np.all(saturation(nothing) == 0)
    assert saturation(plain).mean() > 0
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


def luminance(color):
    """Relative luminance of sRGB, in [0, 1] (WCAG 2.2)."""
    channels = np.asarray(color, dtype=float) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    lighter, darker = sorted([luminance(one), luminance(other)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("shade", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("sign", "color"), [(1, POSITIVE), (-1, NEGATIVE)])
def test_both_colours_are_seen_on_black_on_grey_and_on_white(shade, sign, color):
    heat = torch.zeros(4, 4)
    heat[0, 0] = sign
    picture = overlay(torch.full((3, 160, 160), shade), heat, mean=[0], std=[1]).astype(int)
    ground = picture[-1, -1]
    assert np.ptp(ground) == 0
    assert np.abs(picture[0, 0] - (0.75 * np.array(color) + 0.25 * ground)).max() <= 1
    weak = overlay(torch.full((3, 160, 160), shade), heat / 3, peak=1.0, mean=[0], std=[1]).astype(int)[0, 0]
    assert contrast(picture[0, 0], ground) > 1.3
    # A third of the largest relevance still has a hue: green and the weaker of red and blue are apart from the other.
    assert np.ptp(weak) > 30


def test_maps_may_share_a_scale():
    grey = torch.full((3, 160, 160), 0.5)
    heat = torch.zeros(4, 4)
    heat[1, 1] = 1.0
    alone = overlay(grey, heat / 4)
    np.testing.assert_array_equal(alone, overlay(grey, heat))
    common = overlay(grey, heat / 4, peak=1.0)
    assert 0 < saturation(common).max() < saturation(alone).max() / 3
    np.testing.assert_array_equal(overlay(grey, heat * 9, peak=1.0)[60, 60], overlay(grey, heat)[60, 60])


def test_the_image_stands_untouched_beside_its_map(image):
    heat = torch.rand(4, 4, generator=torch.Generator().manual_seed(1)) - 0.5
    mask = np.zeros((64, 48), np.uint8)
    mask[8:16, 4:20] = 1
    pair = beside(image, heat, mask)
    np.testing.assert_array_equal(pair[:, :144], to_picture(image))
    np.testing.assert_array_equal(pair[:, -144:], overlay(image, heat, mask))
    titled = titled_pair(image, heat, mask, title="target 'cat', p = 0.93")
    rows = slice(titled.top, titled.top + 192)
    for left, half in zip(titled.left, (pair[:, :144], pair[:, -144:]), strict=True):
        np.testing.assert_array_equal(titled.picture[rows, left : left + 144], half)
    laid = titled.laid(mask)
    assert laid.shape == titled.picture.shape[:2]
    np.testing.assert_array_equal(laid[rows, -144:], enlarge(mask))
    assert laid.sum() == 2 * enlarge(mask).sum()


def scale_of(heat):
    """The rows below the pair."""
    titled = titled_pair(torch.rand(3, 32, 32), heat)
    assert titled.top == 0
    return titled.picture[160:].astype(int)


def test_the_scale_has_blue_only_where_something_speaks_against_the_class():
    def blue(strip):
        return int((strip[..., 2] - strip[..., 0] > 60).sum())

    def red(strip):
        return int((strip[..., 0] - strip[..., 2] > 60).sum())

    signed, positive, zero = (scale_of(heat) for heat in (torch.eye(4) - 0.5, torch.eye(4), torch.zeros(4, 4)))
    assert blue(signed) > 100
    assert red(signed) > 100
    assert blue(positive) == 0
    assert red(positive) > red(signed)
    assert red(zero) == blue(zero) == 0
    assert (zero < 200).any()  # and says so
    # A map of 1e-9 has the same colours as one of 1, and another scale.
    assert not np.array_equal(scale_of(torch.eye(4)), scale_of(torch.eye(4) * 1e-9))


def test_a_long_title_is_broken_and_a_very_long_one_ends():
    short, long, longer = (
        titled_pair(torch.rand(3, 32, 32), torch.eye(2), title=text) for text in ("a", "word " * 20, "word " * 99)
    )
    assert short.picture.shape[1] == long.picture.shape[1]
    assert short.top < long.top <= longer.top == 3 * short.top
