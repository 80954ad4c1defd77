"""VOC's masks and COCO's boxes, by hand."""

import pytest
import torch

from lrptrain.batch import read_batch, token_annotations
from lrptrain.batch.formats import coco_boxes, voc_boxes, voc_mask


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


def voc(*objects):
    boxes = [dict(zip(("xmin", "ymin", "xmax", "ymax"), map(str, corners), strict=True)) for _, corners in objects]
    return {
        "annotation": {"object": [{"name": name, "bndbox": box} for (name, _), box in zip(objects, boxes, strict=True)]}
    }


def test_boxes_of_voc_count_from_one_and_have_their_last_pixel_inside():
    annotations = [voc(("cat", (1, 1, 4, 8)), ("dog", (5, 1, 8, 2))), voc(("dog", (3, 3, 3, 3)))]
    boxes = voc_boxes(annotations)
    assert boxes[0].tolist() == [[0, 0, 4, 8], [4, 0, 8, 2]]
    assert boxes[1, 0].tolist() == [2, 2, 3, 3]
    assert boxes[1, 1].isnan().all()
    chosen = voc_boxes(annotations, ["dog", "cat"])
    assert chosen[0].tolist() == [[4, 0, 8, 2]]
    assert chosen[1].isnan().all()
    batch = read_batch({"image": torch.rand(2, 3, 8, 8), "boxes": chosen})
    annotation, _ = token_annotations(batch, (2, 2))
    assert annotation is not None
    assert annotation.present.tolist() == [True, False]
    assert annotation.evidence[0].tolist() == [0, 0.5, 0, 0]


@pytest.mark.parametrize(
    ("annotations", "categories", "message"),
    [
        ([{"boxes": []}], None, "an annotation of VOC has 'annotation' with 'object'"),
        ([{"object": [{"name": "cat"}]}], None, "an object of VOC has 'bndbox'"),
        ([voc(("cat", (1, 1, 2, 2)))], ["cat", "dog"], "1 annotations need as many categories, not 2"),
    ],
)
def test_annotations_that_are_none_of_voc_are_refused(annotations, categories, message):
    with pytest.raises(ValueError, match=message):
        voc_boxes(annotations, categories)
