"""Annotations of a training batch, in one form."""

import pytest
import torch

from lrptrain.batch import read_batch
from lrptrain.batch.annotations import IGNORED
from lrptrain.guidance.evidence import (
    at_tokens,
    evidence,
    guidable_samples,
    has_annotation,
)

IMAGE = torch.zeros(2, 3, 4, 4)
MASK = torch.eye(4, dtype=torch.uint8).repeat(2, 1, 1)
IDS = torch.ones(2, 3, dtype=torch.long)


def test_masks():
    assert torch.equal(evidence({"image": IMAGE, "mask": MASK}), MASK)
    regions = torch.stack([MASK, 1 - MASK], 1)
    assert torch.equal(evidence({"pixel_values": IMAGE, "mask": regions}), MASK)
    assert torch.equal(evidence(read_batch({"image": IMAGE, "mask": MASK.bool()})), MASK)
    both = evidence({"image": IMAGE, "mask": MASK, "boxes": torch.zeros(2, 1, 4)})
    assert torch.equal(both, MASK)
    assert evidence({"image": IMAGE, "mask": MASK.to(torch.int8)}).dtype == torch.long, "which holds 255"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.long, torch.float32])
def test_masks_of_another_size_are_resized(dtype):
    small = torch.tensor([[[1, 0], [255, 0]]] * 2).to(dtype)
    large = small.repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert torch.equal(evidence({"image": IMAGE, "mask": small}), large)
    assert torch.equal(evidence({"image": torch.zeros(2, 3, 2, 2), "mask": large}), small)


def test_boxes():
    boxes = torch.tensor([[[1.0, 0.0, 3.0, 2.0]], [[torch.nan] * 4]])
    found = evidence({"image": IMAGE, "boxes": boxes})
    assert found[0].tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert (found[1] == IGNORED).all()


def test_rationales_without_padding_and_special_tokens_unless_they_are_marked():
    """`[CLS] good film [SEP] [PAD]`; a loss on attention would else be about [CLS] alone."""
    ids = torch.ones(3, 5, dtype=torch.long)
    rationale = torch.tensor([[0, 1, 0, 0, 0], [1, 0, 1, 0, 1], [255, 255, 255, 255, 255]])
    padding = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    before = rationale.clone()
    found = evidence({"input_ids": ids, "rationale": rationale, "attention_mask": padding})
    assert found.tolist() == [[255, 1, 0, 255, 255], [1, 0, 1, 0, 1], [255] * 5]
    assert torch.equal(rationale, before)
    assert evidence({"input_ids": ids, "rationale": rationale})[0].tolist() == [255, 1, 0, 0, 255]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": IMAGE}, r"no annotation of images in a batch with \['image'\]: guidance needs 'mask' or 'boxes'"),
        ({"image": IMAGE, "rationale": IDS}, "no annotation of images"),
        ({"input_ids": IDS, "mask": MASK}, r"no annotation of texts in a batch .*: guidance needs 'rationale'"),
        ({"image": IMAGE, "mask": MASK[:, 0]}, r"'mask' must be \[batch, height, width\], got \(2, 4\)"),
        ({"image": IMAGE, "mask": MASK[:, :1]}, "masks of 1 x 4 for images of 4 x 4 pixels have another shape"),
        ({"image": IMAGE, "mask": 3 * MASK}, r"mask must be 1 \(evidence\).*found \[3.0\]"),
        (
            {"input_ids": IDS, "rationale": IDS[:, :2]},
            r"'rationale' \(2, 2\) must have the shape of 'input_ids' \(2, 3\)",
        ),
        ({"input_ids": IDS, "rationale": 2 * IDS}, "rationale must be 1"),
    ],
)
def test_wrong_annotations(batch, message):
    with pytest.raises(ValueError, match=message):
        evidence(batch)


def test_who_can_be_guided():
    mask = MASK.clone()
    mask[1] = IGNORED
    batch = {"evidence": mask, "label": torch.tensor([0, 1])}
    assert has_annotation(mask).tolist() == guidable_samples(batch, True).tolist() == [True, False]
    batch["label"][0] = -100
    assert guidable_samples(batch, True).tolist() == [False, False]
    assert guidable_samples(batch, False).tolist() == [True, False]
    with pytest.raises(ValueError, match=r"no 'label' in a batch with \['evidence'\].*target='predicted'"):
        guidable_samples({"evidence": mask}, True)


def test_at_the_tokens():
    images = at_tokens(MASK, (2, 2))
    assert images.evidence[0].tolist() == [0.5, 0, 0, 0.5]
    texts = at_tokens(torch.tensor([[1, 0, 255]]), None)
    assert (texts.evidence.tolist(), texts.valid.tolist()) == ([[1, 0, 0]], [[1, 1, 0]])
