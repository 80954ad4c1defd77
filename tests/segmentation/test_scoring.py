import pytest
import torch
from torchmetrics.classification import MulticlassJaccardIndex

from lrptrain.segmentation.scoring import MaskScore, class_iou


def drawn(seed=0, classes=4):
    generator = torch.Generator().manual_seed(seed)
    predicted, truth = (torch.randint(0, classes + 1, (6, 9, 7), generator=generator) for _ in range(2))
    truth[:, 0] = 255
    return predicted.to(torch.uint8), truth.to(torch.uint8)


def scored(predicted, truth, classes=4, at_once=2):
    score = MaskScore(classes)
    for part in zip(predicted.split(at_once), truth.split(at_once), strict=True):
        score.update(*part)
    return score.compute()


def test_against_torchmetrics():
    predicted, truth = drawn()
    oracle = MulticlassJaccardIndex(5, average="none", ignore_index=255)
    expected = oracle(predicted.long(), truth.long())
    found = scored(predicted, truth)
    torch.testing.assert_close(found["per_class"], expected)
    torch.testing.assert_close(found["mean_iou"], expected.mean())
    assert found["pixels"] == (truth != 255).sum()


def test_by_hand():
    truth = torch.tensor([[[0, 0, 1, 1, 255]]], dtype=torch.uint8)
    predicted = torch.tensor([[[0, 1, 1, 1, 3]]], dtype=torch.uint8)
    found = scored(predicted, truth)
    assert found["per_class"][:2].tolist() == [pytest.approx(1 / 2), pytest.approx(2 / 3)]
    assert found["per_class"][2:].isnan().all()  # neither present nor predicted: left out of the mean
    assert found["mean_iou"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_undecided_pixels_miss():
    truth = torch.tensor([[[0, 0, 1, 1]]], dtype=torch.uint8)
    found = scored(torch.tensor([[[0, 255, 1, 255]]], dtype=torch.uint8), truth)
    assert found["per_class"][:2].tolist() == [0.5, 0.5]
    assert found["pixels"] == 4


def test_two_metrics_are_one_when_their_counts_are_added():
    predicted, truth = drawn(2)
    first, second, whole = MaskScore(4), MaskScore(4), MaskScore(4)
    first.update(predicted[:2], truth[:2])
    second.update(predicted[2:], truth[2:])
    whole.update(predicted, truth)
    assert torch.equal(first.confmat + second.confmat, whole.confmat)


def test_nothing_counted():
    found = scored(*(torch.full((1, 2, 2), 255, dtype=torch.uint8) for _ in range(2)))
    assert found["mean_iou"].isnan()
    assert found["pixels"] == 0
    assert class_iou(torch.zeros(3, 3)).isnan().all()


def test_bad_masks():
    predicted, truth = drawn()
    with pytest.raises(ValueError, match=r"true mask has the value 4: 0\.\.3 and 255"):
        MaskScore(3).update(predicted.clamp(max=3), truth)
    with pytest.raises(ValueError, match="predicted mask has the value 4"):
        MaskScore(3).update(predicted, torch.zeros_like(truth))
    with pytest.raises(ValueError, match=r"predicted masks are \[6, 9, 7\]"):
        MaskScore(4).update(predicted, truth[:, 1:])
