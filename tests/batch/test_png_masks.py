"""Masks of 0 and 255: told from those in which nothing is evidence and 255 is ignored."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from lrptrain.batch.annotations import spans_to_rationale
from lrptrain.batch.png_masks import PngMasks

OFFSETS = [[0, 0], [0, 3], [4, 9], [10, 13], [14, 16], [16, 19], [0, 0], [0, 0]]


def problem(*batches: dict[str, Any]) -> str:
    masks = PngMasks()
    for batch in batches:
        masks.add(batch)
    return masks.problem


def png_masks(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Masks as files hold them: 255 is meant as evidence."""
    masks = torch.zeros(shape, dtype=dtype)
    masks[..., 2:6, 1:5] = 255
    return masks


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 1, 8, 8), (3, 2, 8, 8)])
def test_masks_of_0_and_255_are_rejected_with_the_remedy(shape, dtype):
    found = problem({"mask": png_masks(*shape, dtype=dtype)})
    assert re.search(r"^'mask' of a batch holds 0 and 255 and never 1.*pass `mask > 0`.*shuffle", found)
    assert "\n" not in found
    assert not problem({"mask": png_masks(*shape, dtype=dtype) > 0})


EMPTY, ABSENT = torch.zeros(8, 8, dtype=torch.uint8), torch.full((8, 8), 255, dtype=torch.uint8)
CHEQUERED = torch.arange(81, dtype=torch.uint8).reshape(9, 9)[:8, :8] % 2
BORDERED = torch.nn.functional.pad(EMPTY[:6, :6], (1, 1, 1, 1), value=255)  # as PASCAL VOC draws the edges of objects

OUTLINED = torch.nn.functional.pad(EMPTY[:2, :2], (1, 1, 1, 1), value=255)
OUTLINED = torch.nn.functional.pad(OUTLINED, (2, 2, 2, 2))
LETTERBOXED = torch.nn.functional.pad(EMPTY[:4], (0, 0, 2, 2), value=255)
SOLID = torch.nn.functional.pad(ABSENT[:4, :4], (2, 2, 2, 2))


@pytest.mark.parametrize(
    "masks",
    [
        [EMPTY, EMPTY],
        [ABSENT, ABSENT],
        [EMPTY, ABSENT],
        [CHEQUERED, ABSENT],
        [BORDERED, EMPTY + 1],
        [BORDERED, BORDERED],
        [OUTLINED, OUTLINED],
        [LETTERBOXED, EMPTY],
        [BORDERED.where(BORDERED > 0, 1), BORDERED],
    ],
    ids=[
        "nothing is evidence",
        "not annotated",
        "some annotated",
        "0, 1 and 255",
        "an empty one with a border",
        "nothing but borders",
        "nothing but outlines",
        "a letterbox",
        "both",
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_other_masks_stay_legal(masks, dtype):
    stacked = torch.stack(masks).to(dtype)
    assert not problem({"mask": stacked})
    assert not problem({"mask": stacked[:, None]})
    assert not problem({"mask": stacked[None]})  # as two regions of one sample, one of which may be absent


BAND = torch.nn.functional.pad(EMPTY[:, :6], (2, 0), value=255)  # too wide for what a crop leaves on one side


@pytest.mark.parametrize("masks", [[SOLID, EMPTY], [BAND, BAND], [BAND, EMPTY]])
def test_objects_beside_masks_without_evidence_are_rejected(masks):
    assert "pass `mask > 0`" in problem({"mask": torch.stack(masks)})


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float32])
def test_binary_masks_of_any_dtype_stay_legal(dtype):
    assert not problem({"mask": CHEQUERED.expand(3, 8, 8).to(dtype)})
    assert not problem({"mask": torch.zeros(3, 8, 8, dtype=dtype)})


ATTENDED = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize(
    "rationale", [[0, 0, 255, 255, 0, 0, 0, 0], [255, 255, 0, 0, 0, 0, 0, 0], [0, 0, 255, 255, 0, 0, 255, 255]]
)
def test_rationales_of_0_and_255_are_rejected(rationale):
    values = torch.tensor([rationale, [255] * 8])
    found = problem({"rationale": values, "attention_mask": ATTENDED.expand(2, -1)})
    assert re.search(r"'rationale' .* pass `rationale > 0`", found)
    assert not problem({"rationale": values > 0, "attention_mask": ATTENDED.expand(2, -1)})


@pytest.mark.parametrize(
    "rationale",
    [
        [255, 0, 0, 0, 0, 255, 255, 255],
        [255, 0, 0, 255, 0, 255, 255, 255],
        [255, 0, 0, 0, 0, 0, 255, 255],
        [0, 0, 0, 0, 0, 255, 255, 255],
        [0, 0, 0, 0, 0, 0, 255, 255],
        [0] * 8,
        [255] * 8,
    ],
    ids=["ends", "a separator", "a first token", "a last token", "padding", "nothing", "not annotated"],
)
@pytest.mark.parametrize("masked", [True, False])
def test_rationales_without_evidence_may_ignore_special_tokens_and_padding(rationale, masked):
    masks = {"attention_mask": ATTENDED} if masked else {}
    assert not problem({"rationale": torch.tensor([rationale]), **masks})


def test_the_rationale_of_a_text_without_evidence_is_legal():
    """What `spans_to_rationale` makes of no span: 0 at words, 255 at special tokens and padding."""
    assert not problem({"rationale": spans_to_rationale([[]], torch.tensor([OFFSETS]))})


def test_batches_without_masks_and_with_lists_are_passed_over():
    assert not problem({"image": torch.full((2, 3, 4, 4), 255.0), "sample_id": ["a", "b"]})


def test_a_1_in_any_batch_clears_all():
    png, read = {"mask": png_masks(3, 8, 8)}, {"mask": png_masks(3, 8, 8) > 0}
    assert problem(png, png)
    assert not problem(png, read)
    assert not problem(read, png)


@pytest.mark.parametrize(("side", "object_side", "line"), [(32, 10, 1), (224, 30, 3), (512, 60, 8)])
def test_objects_are_told_from_outlines_at_every_size(side, object_side, line):
    filled = torch.zeros(2, side, side, dtype=torch.uint8)
    filled[:, 5 : 5 + object_side, -5 - object_side : -5] = 255
    outlined = filled.clone()
    outlined[:, 5 + line : 5 + object_side - line, -5 - object_side + line : -5 - line] = 0
    assert problem({"mask": filled})
    assert not problem({"mask": outlined})
