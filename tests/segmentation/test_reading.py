import pytest
import torch

from lrptrain.segmentation.reading import labelled, read_pictures, true_masks

IMAGES = torch.rand(3, 3, 8, 8)
MASKS = torch.tensor([0, 1, 255], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8).clone()


def test_forms_of_batches():
    whole = read_pictures(
        {"image": IMAGES, "label": torch.tensor([1, 0, -1]), "mask": MASKS, "sample_id": ["a", 4, "c"]}
    )
    assert whole.names == ["a", 4, "c"]
    assert whole.masks is not None
    of_tuple = read_pictures((IMAGES, torch.zeros(3).long(), MASKS)).masks
    assert of_tuple is not None
    assert torch.equal(of_tuple, whole.masks)
    several = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    for batch in ({"pixel_values": IMAGES, "labels": several}, (IMAGES, several), (IMAGES, several, MASKS)):
        found = read_pictures(batch, (10).__add__)
        assert torch.equal(labelled(found.shown, 3), several.bool())
        assert found.names == [10, 11, 12]
    assert read_pictures({"image": IMAGES}).shown is None
    assert read_pictures([IMAGES]).masks is None
    adapted = read_pictures({"x": IMAGES}, adapter=lambda batch: {"image": batch["x"]})
    assert torch.equal(adapted.rows([2]).images, IMAGES[2:])


def test_labels():
    assert labelled(torch.tensor([1, 0, -1]), 3).tolist() == [[False, True, False], [True, False, False], [False] * 3]
    with pytest.raises(ValueError, match="no label"):
        labelled(None, 3)
    with pytest.raises(ValueError, match="label 3 is no class"):
        labelled(torch.tensor([3]), 3)
    with pytest.raises(ValueError, match="labels have 2 classes, the model has 3"):
        labelled(torch.zeros(1, 2), 3)


def test_evidence_is_of_the_one_class():
    given = read_pictures({"image": IMAGES, "mask": torch.stack([MASKS[1]] * 3)})
    present = torch.tensor([[0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool()
    found = true_masks(given, present, "evidence")
    assert [mask.unique().tolist() for mask in found] == [[2], [255], [255]]


def test_masks_of_classes_and_of_another_size():
    masks = torch.tensor([[[0, 3], [255, 1]]] * 3, dtype=torch.uint8)
    given = read_pictures({"image": IMAGES, "mask": masks})
    found = true_masks(given, torch.ones(3, 3).bool(), "classes")
    assert found.shape == (3, 8, 8)
    assert torch.equal(found[:, ::4, ::4], masks)
    assert true_masks(read_pictures([IMAGES]), torch.ones(3, 3).bool(), "classes").unique().tolist() == [255]


def test_bad_batches():
    with pytest.raises(ValueError, match=r"value 3: 0\.\.1 and 255 .* or masks='classes'"):
        true_masks(read_pictures({"image": IMAGES, "mask": 3 * MASKS[[0, 1, 1]]}), torch.ones(3, 3).bool(), "evidence")
    with pytest.raises(ValueError, match=r"value 3: 0\.\.2 and 255"):
        true_masks(read_pictures({"image": IMAGES, "mask": 3 * MASKS[[0, 1, 1]]}), torch.ones(3, 2).bool(), "classes")
    with pytest.raises(ValueError, match="seeds are made of images"):
        read_pictures({"input_ids": torch.ones(2, 4).long()})
    with pytest.raises(ValueError, match="differ in length: 3 images, 2 labels"):
        read_pictures({"image": IMAGES, "label": torch.zeros(2, 3)})
