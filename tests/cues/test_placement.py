"""The swaps of an object's place and size beside what is counted by hand, and what they must leave alone."""

import pytest
import torch

from lrptrain.cues.boxes import Box, bounding_box
from lrptrain.cues.painting import inpainted
from lrptrain.cues.placement import MOST_SCALE, as_large_as, at_place_of, swap_placement

SIZE = (24, 32)


def evidence(*boxes):
    masks = torch.zeros(len(boxes), *SIZE, dtype=torch.bool)
    for mask, box in zip(masks, boxes, strict=True):
        if box is not None:
            mask[box.top : box.bottom, box.left : box.right] = True
    return masks


def test_the_box_of_a_region_is_the_smallest_that_holds_it():
    region = torch.zeros(5, 7, dtype=torch.bool)
    assert bounding_box(region) is None
    region[1, 5] = region[3, 2] = True
    assert bounding_box(region) == Box(1, 2, 4, 6)
    assert (Box(1, 2, 4, 6).height, Box(1, 2, 4, 6).width) == (3, 4)


@pytest.mark.parametrize(
    ("thing", "source", "expected"),
    [
        (Box(2, 3, 8, 7), Box(10, 20, 14, 28), Box(9, 22, 15, 26)),
        (Box(9, 22, 15, 26), Box(2, 3, 8, 7), Box(2, 3, 8, 7)),
        (Box(2, 3, 8, 7), Box(23, 31, 24, 32), Box(18, 28, 24, 32)),  # no further than the lower right corner
        (Box(9, 22, 15, 26), Box(0, 0, 1, 1), Box(0, 0, 6, 4)),
    ],
)
def test_an_object_moves_to_the_middle_of_the_sources_within_the_image(thing, source, expected):
    assert at_place_of(thing, source, SIZE) == expected


@pytest.mark.parametrize(
    ("thing", "source", "expected"),
    [
        (Box(8, 8, 14, 12), Box(0, 0, 12, 8), Box(5, 6, 17, 14)),
        (Box(5, 6, 17, 14), Box(0, 0, 6, 4), Box(8, 8, 14, 12)),
        (Box(0, 0, 6, 4), Box(8, 4, 20, 12), Box(0, 0, 12, 8)),  # it stays within the image
        (Box(8, 8, 14, 12), Box(0, 0, 24, 32), Box(0, 2, 24, 18)),  # no higher than the image
        (Box(8, 8, 16, 12), Box(0, 0, 24, 32), Box(0, 4, 24, 16)),
        (Box(10, 8, 12, 24), Box(0, 0, 24, 32), Box(9, 0, 13, 32)),  # no wider
        (Box(10, 10, 11, 11), Box(0, 0, 20, 20), Box(8, 8, 12, 12)),  # `MOST_SCALE`
        (Box(4, 4, 20, 20), Box(0, 0, 1, 1), Box(10, 10, 14, 14)),
    ],
)
def test_an_object_takes_the_area_of_the_sources_and_keeps_its_shape_and_middle(thing, source, expected):
    assert MOST_SCALE == 4
    assert as_large_as(thing, source, SIZE) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_an_object_is_moved_with_its_margin_pixel_by_pixel_and_its_old_place_is_painted_over(dtype):
    images = torch.rand(2, 3, *SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    old, new = Box(4, 5, 8, 9), Box(14, 20, 18, 24)
    changed = swap_placement(images, evidence(old, new), evidence(new, old), at_place_of)
    # With a margin of a pixel, boxes of 6 x 6. A blend of neighbours would be off by tenths.
    torch.testing.assert_close(
        changed[0, :, 13:19, 19:25], images[0, :, 3:9, 4:10], rtol=0, atol=4 * torch.finfo(dtype).eps
    )
    ground = inpainted(images, evidence(Box(3, 4, 9, 10), Box(13, 19, 19, 25)))
    torch.testing.assert_close(changed[0, :, 3:9, 4:10], ground[0, :, 3:9, 4:10], rtol=0, atol=2e-3)
    elsewhere = ~evidence(Box(3, 4, 9, 10), Box(13, 19, 19, 25)).any(0)
    assert torch.equal(changed[:, :, elsewhere], images[:, :, elsewhere])
    # Back again: it is where it was, and the other place is painted over.
    back = swap_placement(changed[:1], evidence(new), evidence(old), at_place_of)
    torch.testing.assert_close(back[0, :, 3:9, 4:10], images[0, :, 3:9, 4:10], rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_coordinates_keep_their_precision_in_16_bits():
    # At column 300 of 512, float16 has steps of a quarter of a pixel.
    ramp = torch.arange(512, dtype=torch.float64).expand(1, 1, 8, 512) / 512
    here = torch.zeros(1, 8, 512, dtype=torch.bool)
    here[..., 300:340] = True
    there = here.roll(100, 2)
    exact = swap_placement(ramp, here, there, at_place_of)
    coarse = swap_placement(ramp.half(), here, there, at_place_of)
    torch.testing.assert_close(coarse.double()[..., 400:440], exact[..., 400:440], rtol=0, atol=2**-11)


def test_an_object_of_twice_the_size_shows_each_pixel_twice():
    # A ramp is what bilinear sampling reproduces exactly.
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in SIZE), indexing="ij")
    images = torch.stack([rows, columns])[None]
    small = evidence(Box(10, 12, 12, 14))  # 4 x 4 pixels with its margin
    large = evidence(Box(2, 2, 8, 8))  # 8 x 8
    changed = swap_placement(images, small, large, as_large_as)
    middle = torch.arange(8, dtype=torch.float64) / 2 - 0.25
    torch.testing.assert_close(changed[0, 0, 7:15, 12], 9 + middle, rtol=0, atol=1e-12)
    torch.testing.assert_close(changed[0, 1, 11, 9:17], 11 + middle, rtol=0, atol=1e-12)
    assert torch.equal(changed[0, :, :7], images[0, :, :7])


def test_images_without_evidence_or_with_a_source_without_stay_as_they_are():
    images = torch.rand(3, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    box = Box(4, 5, 8, 9)
    changed = swap_placement(images, evidence(box, None, None), evidence(None, box, None), at_place_of)
    assert torch.equal(changed, images)
