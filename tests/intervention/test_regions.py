import math

import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import Region
from lrptrain.intervention.regions import kept_by_margin, pixels, tokens

IMAGES = {"image": torch.zeros(2, 3, 32, 32)}
TEXTS = {
    "input_ids": torch.tensor([[101, 5, 6, 5, 7, 102], [101, 5, 8, 102, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}


def test_outside_begins_at_a_margin_and_keeps_what_is_ignored():
    mask = torch.zeros(2, 32, 32, dtype=torch.uint8)
    mask[0, 10:20, 10:20] = 1
    mask[0, 0, 0] = 255
    mask[1] = 255  # no annotation
    outside = pixels(Region("outside"), {**IMAGES, "mask": mask}, (4, 4))
    expected = torch.ones(32, 32, dtype=torch.bool)
    expected[8:22, 8:22] = False
    expected[:3, :3] = False
    assert torch.equal(outside[0], expected)
    assert not outside[1].any()


def test_a_mask_of_another_size_is_enlarged():
    mask = torch.zeros(2, 8, 8, dtype=torch.uint8)
    mask[:, 2:4, 2:4] = 1
    outside = pixels(Region("outside"), {**IMAGES, "mask": mask}, (4, 4))
    assert not outside[:, 6:18, 6:18].any()
    assert outside.sum() == 2 * (32 * 32 - 12 * 12)


def test_boxes_serve_too():
    boxes = torch.tensor([[[10.0, 10, 20, 20]], [[float("nan")] * 4]])
    outside = pixels(Region("outside"), {**IMAGES, "boxes": boxes}, (4, 4))
    assert outside[0].sum() == 32 * 32 - 14 * 14
    assert not outside[1].any()


def test_without_any_annotation_there_is_no_outside():
    assert not pixels(Region("outside"), IMAGES, (4, 4)).any()


def test_named_regions_and_patches():
    mask = torch.zeros(2, 2, 32, 32, dtype=torch.uint8)
    mask[:, 1, :4, :4] = 1
    named = pixels(Region("named", 1), {**IMAGES, "mask": mask}, (4, 4))
    assert torch.equal(named, mask[:, 1].bool())
    patches = pixels(Region("patches", (0, 15)), IMAGES, (4, 4))
    assert patches[1, :8, :8].all()
    assert patches[0, 24:, 24:].all()
    assert patches.sum() == 2 * 2 * 64


def test_tokens_and_places_are_content():
    assert tokens(Region("token", 5), TEXTS).nonzero().tolist() == [[0, 1], [0, 3], [1, 1]]
    assert tokens(Region("place", 0), TEXTS).nonzero().tolist() == [[0, 1], [1, 1]]
    assert tokens(Region("place", -1), TEXTS).nonzero().tolist() == [[0, 4], [1, 2]]
    assert not tokens(Region("outside"), TEXTS).any()


def test_what_lies_outside_a_rationale():
    rationale = torch.tensor([[255, 1, 0, 0, 0, 255], [255, 255, 255, 255, 255, 255]])
    found = tokens(Region("outside"), {**TEXTS, "rationale": rationale})
    assert found.nonzero().tolist() == [[0, 2], [0, 3], [0, 4]]
    unmarked = torch.tensor([[255, 0, 0, 0, 0, 255], [255, 1, 0, 255, 255, 255]])
    assert tokens(Region("outside"), {**TEXTS, "rationale": unmarked}).nonzero().tolist() == [[1, 2]]


def test_the_share_of_the_surroundings_that_a_margin_keeps():
    mask = torch.zeros(12, 12, dtype=torch.uint8)
    mask[4:8, 4:8] = 1  # 16 of 144 pixels; with 2 around it 64
    unmarked = torch.full((12, 12), 255, dtype=torch.uint8)
    image = torch.zeros(3, 12, 12)
    samples = [Sample(i, 0, {"image": image, "mask": each}) for i, each in enumerate((mask, unmarked))]
    assert kept_by_margin(samples, 2) == pytest.approx(48 / 128)
    assert kept_by_margin(samples, 0) == 0
    boxes = Sample(2, 0, {"image": image, "boxes": torch.tensor([[4.0, 4, 8, 8]])})
    assert kept_by_margin([boxes], 2) == pytest.approx(48 / 128)
    assert math.isnan(kept_by_margin([samples[1], Sample(3, 0, {"input_ids": torch.ones(3)})], 2))
