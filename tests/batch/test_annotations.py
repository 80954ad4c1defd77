import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from lrptrain.batch.annotations import (
    TokenAnnotation,
    boxes_to_mask,
    mask_to_tokens,
    rationale_to_tokens,
    regions_to_tokens,
    spans_to_rationale,
)

# A wrong number of axes is a ValueError, or jaxtyping's own error where the run checks shapes.
WRONG_SHAPE = (ValueError, TypeCheckError)
sizes = st.integers(1, 9)


def random_mask(*shape: int, seed: int = 0) -> Tensor:
    values = torch.tensor([0, 1, 255], dtype=torch.uint8)
    return values[torch.randint(3, shape, generator=torch.Generator().manual_seed(seed))]


def patch_mean(part: Tensor, grid: tuple[int, int]) -> Tensor:
    """Textbook: blow every pixel up until the patches are whole numbers of pixels, then take plain means."""
    rows, columns = grid
    fine = part.double().repeat_interleave(rows, 1).repeat_interleave(columns, 2)
    height, width = part.shape[1:]
    return fine.unflatten(2, (columns, width)).unflatten(1, (rows, height)).mean((2, 4)).flatten(1)


@given(height=sizes, width=sizes, rows=sizes, columns=sizes, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_mask_shares_are_exact_areas(height, width, rows, columns, seed):
    mask = random_mask(2, height, width, seed=seed)
    annotation = mask_to_tokens(mask, (rows, columns))
    valid, evidence = patch_mean(mask != 255, (rows, columns)), patch_mean(mask == 1, (rows, columns))
    torch.testing.assert_close(annotation.valid.double(), valid, atol=1e-6, rtol=0)
    expected = torch.where(valid > 0, evidence / valid, 0)
    torch.testing.assert_close(annotation.evidence.double(), expected, atol=1e-6, rtol=0)
    assert annotation.evidence.amax() <= 1
    assert annotation.valid.amax() <= 1
    share = (mask == 1).sum((1, 2)) / (mask != 255).sum((1, 2))
    torch.testing.assert_close(annotation.chance, share, equal_nan=True)


def test_mask_by_hand():
    mask = torch.tensor([[[1, 1, 0, 255], [0, 1, 0, 255]]])
    annotation = mask_to_tokens(mask, (1, 2))
    assert annotation.evidence.tolist() == [[0.75, 0.0]]
    assert annotation.valid.tolist() == [[1.0, 0.5]]
    assert annotation.usable.tolist() == [[True, True]]
    assert annotation.marked.tolist() == [[True, False]]
    assert annotation.chance.tolist() == [0.5]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_mask_in_any_dtype(dtype):
    mask = random_mask(3, 7, 5)
    expected, annotation = mask_to_tokens(mask, (2, 3)), mask_to_tokens(mask.to(dtype), (2, 3))
    assert torch.equal(annotation.evidence, expected.evidence)
    assert torch.equal(annotation.valid, expected.valid)


def test_bool_mask_is_all_valid():
    annotation = mask_to_tokens(torch.tensor([[[True, False]]]), (1, 2))
    assert annotation.evidence.tolist() == [[1, 0]]
    assert annotation.valid.tolist() == [[1, 1]]


def test_mask_shares_are_exact_under_autocast():
    mask = random_mask(2, 224, 224)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        annotation = mask_to_tokens(mask, (14, 14))
    assert torch.equal(annotation.evidence, mask_to_tokens(mask, (14, 14)).evidence)


def test_ignored_everywhere_is_absent_and_empty_is_present():
    mask = torch.stack([torch.full((4, 4), 255), torch.zeros(4, 4, dtype=torch.long)])
    annotation = mask_to_tokens(mask, (2, 2))
    assert annotation.present.tolist() == [False, True]
    assert annotation.chance[0].isnan()
    assert annotation.chance[1] == 0
    assert annotation.evidence.sum() == 0


def test_wrong_masks_say_what_to_change():
    with pytest.raises(ValueError, match=r"mask must be 1 .* found \[2.0, 7.0\].*`mask == 2`"):
        mask_to_tokens(torch.tensor([[[0, 1, 2, 7, 255]]]), (1, 1))
    with pytest.raises(ValueError, match="found"):
        mask_to_tokens(torch.tensor([[[0.0, torch.nan]]]), (1, 1))
    with pytest.raises(ValueError, match="grid"):
        mask_to_tokens(random_mask(1, 4, 4), (0, 2))
    with pytest.raises(WRONG_SHAPE):
        mask_to_tokens(random_mask(1, 1, 4, 4), (2, 2))


def test_annotation_parts_must_fit():
    with pytest.raises(WRONG_SHAPE):
        TokenAnnotation(evidence=torch.zeros(1, 4), valid=torch.ones(1, 3))


def test_regions_are_one_annotation_per_name():
    regions = random_mask(2, 3, 6, 6)
    annotations = regions_to_tokens(regions, ["head", "tag", "text"], (2, 2))
    assert list(annotations) == ["head", "tag", "text"]
    assert torch.equal(annotations["tag"].evidence, mask_to_tokens(regions[:, 1], (2, 2)).evidence)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"]])
def test_region_names_must_fit(names):
    with pytest.raises(ValueError, match="3 regions need"):
        regions_to_tokens(random_mask(2, 3, 6, 6), names, (2, 2))


def test_regions_need_their_axis():
    with pytest.raises(WRONG_SHAPE):
        regions_to_tokens(random_mask(2, 6, 6), ["a"], (2, 2))


def test_boxes_by_hand():
    nan = [torch.nan] * 4
    boxes = torch.tensor([[[0, 0, 2, 1], [2.4, 0.6, 99, 2]], [[-5, -5, 0.5, 9], nan], [nan, nan]])
    mask = boxes_to_mask(boxes, (2, 4))
    assert mask.dtype == torch.uint8
    # 0.5 is the centre of column 0: the right edge is excluded, but what lies in the image is never lost.
    assert mask.tolist() == [[[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 0, 0, 0], [1, 0, 0, 0]], [[255] * 4, [255] * 4]]


@pytest.mark.parametrize(
    ("box", "pixel"),
    [
        ([2.6, 1.6, 3.4, 2.4], (2, 3)),
        ([0.6, 0.6, 0.8, 0.8], (0, 0)),
        ([3.6, 3.6, 9, 9], (3, 3)),
        ([-1, -1, 1e-6, 1e-6], (0, 0)),
        ([4, 0, 5, 9], None),
        ([0, -2, 4, 0], None),
    ],
)
def test_boxes_between_centres_are_a_pixel_and_boxes_outside_none(box, pixel):
    mask = boxes_to_mask(torch.tensor([[box]]), (4, 4))[0]
    assert [tuple(place) for place in mask.nonzero().tolist()] == ([] if pixel is None else [pixel])


def test_boxes_equal_a_loop_over_pixels():
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(5, 3, 2, 2, generator=generator) * 14 - 2
    boxes = torch.cat([corners.amin(2), corners.amax(2)], -1)
    mask = boxes_to_mask(boxes, (9, 11))
    for image in range(5):
        expected = torch.zeros(9, 11, dtype=torch.uint8)
        for x1, y1, x2, y2 in boxes[image].tolist():
            for y in drawn(y1, y2, 9):
                expected[y, drawn(x1, x2, 11)] = 1
        assert torch.equal(mask[image], expected)


def drawn(low: float, high: float, length: int) -> list[int]:
    """The pixels between two edges, one after the other."""
    inside = [pixel for pixel in range(length) if low <= pixel + 0.5 < high]
    overlap = max(low, 0), min(high, length)
    return inside or ([int(sum(overlap) / 2)] if overlap[0] < overlap[1] else [])


def test_no_boxes_is_no_annotation():
    assert (boxes_to_mask(torch.zeros(2, 0, 4), (3, 3)) == 255).all()


@pytest.mark.parametrize("box", [[2, 0, 2, 1], [3, 0, 1, 1], [0, 0, 1, torch.nan], [0, 4, 5, 4]])
def test_boxes_without_area_are_refused(box):
    with pytest.raises(ValueError, match="x1 < x2 and y1 < y2"):
        boxes_to_mask(torch.tensor([[box]], dtype=torch.float32), (4, 4))


def test_boxes_need_four_numbers():
    with pytest.raises(WRONG_SHAPE):
        boxes_to_mask(torch.zeros(2, 3), (4, 4))


def test_rationale_with_padding():
    rationale = torch.tensor([[255, 1, 0, 1], [255, 255, 255, 255]])
    annotation = rationale_to_tokens(rationale, torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]]))
    assert annotation.evidence.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    assert annotation.valid.tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]
    assert annotation.present.tolist() == [True, False]


def test_rationale_without_attention_mask():
    assert rationale_to_tokens(torch.tensor([[True, False]])).valid.tolist() == [[1, 1]]


def test_wrong_rationales_say_what_to_change():
    with pytest.raises(ValueError, match="rationale must be 1"):
        rationale_to_tokens(torch.tensor([[-100, 1]]))
    with pytest.raises(WRONG_SHAPE):
        rationale_to_tokens(torch.tensor([1, 0]))
    with pytest.raises(WRONG_SHAPE):
        rationale_to_tokens(torch.tensor([[1, 0]]), torch.ones(1, 3))


# "[CLS] the movie was aw ##ful [SEP] [PAD]" for "the movie was awful"
OFFSETS = [[0, 0], [0, 3], [4, 9], [10, 13], [14, 16], [16, 19], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(10, 19)], [255, 0, 0, 1, 1, 1, 255, 255]),
        ([(15, 16)], [255, 0, 0, 0, 1, 0, 255, 255]),
        ([(0, 1), (17, 18)], [255, 1, 0, 0, 0, 1, 255, 255]),
        ([(3, 4)], [255, 0, 0, 0, 0, 0, 255, 255]),
        ([(40, 50)], [255, 0, 0, 0, 0, 0, 255, 255]),
        ([], [255, 0, 0, 0, 0, 0, 255, 255]),
        (None, [255] * 8),
    ],
)
def test_spans_by_hand(spans, expected):
    rationale = spans_to_rationale([[(0, 3)], spans], torch.tensor([OFFSETS, OFFSETS]))
    assert rationale.dtype == torch.uint8
    assert rationale[1].tolist() == expected


@pytest.mark.parametrize("span", [(3, 3), (5, 2), (-1, 2)])
def test_wrong_spans_are_refused(span):
    with pytest.raises(ValueError, match=r"sample 0: a span is \(start, end\)"):
        spans_to_rationale([[span]], torch.tensor([OFFSETS]))


def test_spans_need_one_row_of_offsets_each():
    with pytest.raises(ValueError, match="for 2 samples"):
        spans_to_rationale([None, None], torch.tensor([OFFSETS]))
