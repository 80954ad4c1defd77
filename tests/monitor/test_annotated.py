"""Annotations that cannot be right are named, or not used."""

import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.batch.task import MASKS
from lrptrain.monitor.annotated import AnnotationSurvey, merged, survey


def of(count, **tensors):
    return [Sample(i, -1, dict(tensors)) for i in range(count)]


IMAGE = torch.zeros(3, 8, 8)
HALF = torch.zeros(8, 8)
HALF[2:6, 2:6] = 1
BORDERED = torch.ones(8, 8)
BORDERED[:2] = 255
BOX = torch.tensor([[1.0, 1.0, 5.0, 5.0]])


@pytest.mark.parametrize(
    ("most", "few", "is_named"),
    [
        ({"mask": torch.ones(8, 8)}, {"mask": HALF}, True),
        ({"mask": BORDERED}, {"mask": HALF}, True),  # nothing of what is judged
        ({"boxes": torch.tensor([[0.0, 0.0, 8.0, 8.0]])}, {"boxes": BOX}, True),
        ({"mask": torch.ones(8, 8)}, {"mask": torch.full((8, 8), 255)}, True),  # the others are not annotated
        ({"mask": HALF}, {"mask": torch.ones(8, 8)}, False),
        ({"mask": torch.stack([HALF, 1 - HALF])}, {"mask": torch.stack([HALF, HALF])}, False),  # two regions
        ({"mask": torch.ones(8, 8), MASKS: torch.ones(2, 8, 8)}, {"mask": HALF}, False),  # one for each label
        ({"boxes": BOX}, {"boxes": BOX}, False),
        ({"mask": torch.zeros(8, 8)}, {"mask": torch.zeros(8, 8)}, False),
    ],
)
def test_images_that_are_marked_all_over_are_named(most, few, is_named):
    found = survey([*of(5, image=IMAGE, **most), *of(3, image=IMAGE, **few)])
    assert ("samples mark everything: nothing outside of them can be a shortcut" in found.remark) == is_named
    assert not found.misread


TEXT = {"input_ids": torch.tensor([1, 7, 8, 9, 2, 0, 0]), "attention_mask": torch.tensor([1, 1, 1, 1, 1, 0, 0])}


@pytest.mark.parametrize(
    ("rationale", "misread", "remark"),
    [
        ([0, 0, 0, 0, 0, 1, 1], True, False),  # padding
        ([1, 0, 0, 0, 0, 0, 0], True, False),  # [CLS]
        ([1, 0, 0, 0, 1, 0, 1], True, False),
        ([0, 0, 1, 0, 0, 0, 0], False, False),
        ([255, 0, 1, 0, 255, 255, 255], False, False),
        ([1, 0, 1, 0, 1, 1, 1], False, False),  # a word, too
        ([0, 1, 1, 1, 0, 0, 0], False, True),
        ([0, 0, 0, 0, 0, 0, 0], False, False),
    ],
)
def test_texts_that_are_marked_where_no_words_are_cannot_be_used(rationale, misread, remark):
    found = survey(of(4, **TEXT, rationale=torch.tensor(rationale)))
    assert ("marks padding or special tokens alone" in found.misread) == misread
    assert ("4 of 4 samples mark everything" in found.remark) == remark
    assert found.without_content == found.misread


def test_half_of_the_texts_are_no_mistake_and_processes_count_together():
    parts = [AnnotationSurvey("rationale", marked=4, nowhere=count) for count in (4, 0)]
    assert not merged(parts).misread
    assert merged([parts[0], parts[0], parts[1]]).misread.startswith("'rationale' of 8 of 12 texts marks padding")


@pytest.mark.parametrize(("count", "is_asked"), [(2, False), (3, True)])
def test_boxes_that_may_be_corner_and_size_are_asked_about(count, is_asked):
    """At random, both of two boxes lie there in 6 % of sets, and all of three in 1.6 %."""
    corner = [Sample(i, -1, {"image": IMAGE, "boxes": torch.tensor([[0.1 * i, 0.0, 2.0, 3.0]])}) for i in range(count)]
    elsewhere = Sample(9, -1, {"image": IMAGE, "boxes": torch.tensor([[1.0, 1.0, 7.5, 8.0]])})
    assert ("are yours (x, y, width, height)?" in survey(corner).remark) == is_asked
    assert not survey([*corner, elsewhere]).remark


OBJECT = 255 * HALF


@pytest.mark.parametrize(
    ("masks", "misread", "remark"),
    [
        ([torch.full((8, 8), 255)] * 3, "", "no sample is annotated: every 'mask' is 255 throughout"),
        ([HALF, OBJECT], "", "'mask' of the samples 1 holds 0 and 255 and no 1: read as no evidence"),
        ([OBJECT, OBJECT], "`mask > 0`", ""),
        ([HALF, 0 * HALF], "", ""),
    ],
)
def test_masks_of_0_and_255_are_named_or_not_used(masks, misread, remark):
    found = survey([Sample(i, -1, {"image": IMAGE, "mask": each}) for i, each in enumerate(masks)])
    assert misread in found.misread
    assert bool(found.misread) == bool(misread)
    assert found.misread or found.remark.startswith(remark)
