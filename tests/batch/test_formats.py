"""VOC's masks and COCO's boxes, by hand."""

import pytest
import torch

from lrptrain.batch import read_batch, token_annotations
from lrptrain.batch.formats import coco_boxes, voc_mask


def test_masks_of_voc_hold_the_class_of_the_label():
    classes = torch.tensor([[[0, 3, 255], [1, 3, 3]]] * 3, dtype=torch.uint8)
    expected = [[[0, 1, 255], [0, 1, 1]], [[0, 0, 255], [1, 0, 0]], [[255] * 3] * 2]
    assert voc_mask(classes, torch.tensor([2, 0, -1])).tolist() == expected
    with pytest.raises(ValueError, match="with one label each"):
        voc_mask(classes, torch.tensor([1]))


def test_the_last_class_of_254_is_no_border():
    classes = torch.tensor([[[254, 255]]], dtype=torch.uint8)
    assert voc_mask(classes, torch.tensor([253])).tolist() == [[[1, 255]]]
    assert voc_mask(classes, torch.tensor([254])).tolist() == [[[0, 255]]]


def test_boxes_of_coco_by_their_corners():
    nan = float("nan")
    boxes = coco_boxes(torch.tensor([[[1, 2, 3, 4], [nan] * 4]]))
    assert boxes[0, 0].tolist() == [1, 2, 4, 6]
    assert boxes[0, 1].isnan().all()
    assert coco_boxes(torch.tensor([[[1, 2, 3, 4]]])).tolist() == [[[1.0, 2.0, 4.0, 6.0]]]
    with pytest.raises(ValueError, match=r"\[batch, boxes, 4\]"):
        coco_boxes(torch.ones(2, 4))


def test_a_box_covers_its_pixels():
    batch = read_batch({"image": torch.rand(1, 3, 8, 8), "boxes": coco_boxes(torch.tensor([[[4, 0, 4, 8]]]))})
    annotation, _ = token_annotations(batch, (2, 2))
    assert annotation is not None
    assert annotation.evidence.tolist() == [[0, 1, 0, 1]]
