import pytest
import torch
from jaxtyping import TypeCheckError
from sklearn.metrics import average_precision_score
from torchmetrics.functional.classification import (
    binary_accuracy,
    binary_average_precision,
    multiclass_jaccard_index,
)

from lrptrain.metrics import (
    SegmentationScore,
    mean_iou,
    pixel_accuracy,
    relative_map,
    segmentation_average_precision,
    segmentation_confusion,
)

GRID, SIZE = (3, 4), (12, 20)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 12, dtype=torch.float64, generator=generator)
    mask = torch.tensor([0, 1, 1, 255])[torch.randint(4, (4, *SIZE), generator=generator)]
    return scores, mask


def textbook(scores, mask):
    """The protocol, one image at a time: (map, prediction, truth) of the pixels that are not ignored."""
    for row, truth in zip(scores, mask, strict=True):
        image = torch.nn.functional.interpolate(row.view(1, 1, *GRID), SIZE, mode="bilinear")[0, 0]
        image = (image - image.min()) / (image.max() - image.min())
        keep = truth != 255
        yield image[keep], (image > image.mean())[keep].long(), truth[keep]


def test_map_is_bilinear_and_relative():
    image = relative_map(torch.tensor([[1.0, 3.0], [5.0, 5.0]]), (1, 2), (1, 4))
    assert image.tolist() == [[[0, 0.25, 0.75, 1]], [[0, 0, 0, 0]]]


def test_confusion_by_hand():
    mask = torch.tensor([[[0, 1, 1, 255]]])
    confusion = segmentation_confusion(torch.tensor([[1.0, 3.0]]), (1, 2), mask)
    assert confusion.tolist() == [[[1, 0], [1, 1]]]
    assert pixel_accuracy(confusion).item() == pytest.approx(2 / 3)
    assert mean_iou(confusion).item() == pytest.approx(0.5)


def test_whole_set_equals_torchmetrics(images):
    scores, mask = images
    _, predicted, truth = (torch.cat(part) for part in zip(*textbook(scores, mask), strict=True))
    total = segmentation_confusion(scores, GRID, mask).sum(0)
    torch.testing.assert_close(pixel_accuracy(total), binary_accuracy(predicted, truth))
    torch.testing.assert_close(mean_iou(total), multiclass_jaccard_index(predicted, truth, num_classes=2))


def test_each_image_equals_torchmetrics(images):
    scores, mask = images
    expected = [multiclass_jaccard_index(p, t, num_classes=2) for _, p, t in textbook(scores, mask)]
    torch.testing.assert_close(mean_iou(segmentation_confusion(scores, GRID, mask)), torch.stack(expected))


def test_average_precision_of_foreground_equals_torchmetrics(images):
    scores, mask = images
    expected = torch.stack([binary_average_precision(m, t) for m, _, t in textbook(scores, mask)])
    value = segmentation_average_precision(scores, GRID, mask, joint=False)
    torch.testing.assert_close(value, expected.double(), atol=1e-6, rtol=0)


def test_joint_average_precision_equals_sklearn_on_both_channels(images):
    scores, mask = images
    value = segmentation_average_precision(scores, GRID, mask)
    for image, (m, _, t) in enumerate(textbook(scores, mask)):
        expected = average_precision_score(torch.cat([1 - t, t]).numpy(), torch.cat([1 - m, m]).numpy())
        assert value[image].item() == pytest.approx(expected, abs=1e-9)


def test_perfect_map_scores_one():
    scores = torch.tensor([[0.0, 1.0]])
    mask = torch.tensor([[[0, 0, 1, 1]]])
    metric = SegmentationScore((1, 2))
    metric.update(scores, mask)
    result = metric.compute()
    assert [result[key].item() for key in ("value", "pixel_accuracy", "average_precision")] == [1, 1, 1]


def test_constant_map_predicts_background():
    mask = torch.tensor([[[0, 0, 0, 1]]])
    constant = torch.full((1, 2), 0.1)
    assert segmentation_confusion(constant, (1, 2), mask).tolist() == [[[3, 0], [1, 0]]]
    assert segmentation_average_precision(constant, (1, 2), mask).item() == pytest.approx(0.5)
    assert segmentation_average_precision(constant, (1, 2), mask, joint=False).item() == pytest.approx(0.25)


def test_a_class_that_never_occurs_is_left_out():
    assert mean_iou(torch.tensor([[4, 0], [0, 0]])).item() == 1
    assert mean_iou(torch.zeros(2, 2, dtype=torch.long)).isnan()
    assert pixel_accuracy(torch.zeros(2, 2, dtype=torch.long)).isnan()


def test_images_without_annotation_or_with_broken_scores_count_nothing(images):
    scores, mask = images[0].clone(), images[1].clone()
    mask[0], scores[1, 3] = 255, torch.nan
    assert segmentation_confusion(scores, GRID, mask).sum((1, 2)).gt(0).tolist() == [False, False, True, True]
    for joint in (True, False):
        precision = segmentation_average_precision(scores, GRID, mask, joint)
        assert precision.isnan().tolist() == [True, True, False, False]
    metric = SegmentationScore(GRID)
    metric.update(scores, mask)
    assert (metric.compute()["samples"], metric.compute()["undefined"]) == (2, 1)


def test_batch_equals_singles(images):
    scores, mask = images
    singles = [segmentation_confusion(scores[i : i + 1], GRID, mask[i : i + 1]) for i in range(4)]
    assert torch.equal(segmentation_confusion(scores, GRID, mask), torch.cat(singles))
    for joint in (True, False):
        alone = [segmentation_average_precision(scores[i : i + 1], GRID, mask[i : i + 1], joint) for i in range(4)]
        together = segmentation_average_precision(scores, GRID, mask, joint)
        torch.testing.assert_close(together, torch.cat(alone), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_computed_in_float32(images, dtype):
    scores, mask = images[0].to(dtype), images[1]
    assert torch.equal(segmentation_confusion(scores, GRID, mask), segmentation_confusion(scores.float(), GRID, mask))
    assert relative_map(scores, GRID, SIZE).dtype == torch.float32


def test_metric_per_class_and_merged(images):
    scores, mask = images
    label = torch.tensor([0, 2, 2, 0])
    whole = SegmentationScore(GRID, num_classes=3)
    whole.update(scores, mask, label)
    parts = [SegmentationScore(GRID, num_classes=3) for _ in range(2)]
    for part, rows in zip(parts, (slice(0, 1), slice(1, 4)), strict=True):
        part.update(scores[rows], mask[rows], label[rows])
    parts[0].merge_state(parts[1])
    confusion = segmentation_confusion(scores, GRID, mask)
    for result in (whole.compute(), parts[0].compute()):
        torch.testing.assert_close(result["value"], mean_iou(confusion.sum(0)))
        torch.testing.assert_close(result["per_class"][2], mean_iou(confusion[1:3].sum(0)))
        assert result["per_class"].isnan().tolist() == [False, True, False]
        precision = segmentation_average_precision(scores, GRID, mask).mean()
        torch.testing.assert_close(result["average_precision"].double(), precision)


def test_wrong_shapes_are_refused(images):
    scores, mask = images
    with pytest.raises(ValueError, match="a grid of"):
        relative_map(scores, (3, 3), SIZE)
    with pytest.raises((ValueError, TypeCheckError)):
        segmentation_confusion(scores, GRID, mask[:2])
    with pytest.raises(ValueError, match="binarise"):
        segmentation_confusion(scores, GRID, mask + 1)
