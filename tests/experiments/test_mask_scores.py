"""Mean IoU as one number an image: its mean is the mean IoU, its spread that of the mean IoU over other images."""

import pytest
import torch

from experiments.intervals import estimate
from experiments.mask_scores import mean_iou_by_image
from lrptrain.segmentation.scoring import MaskScore, class_iou

CLASSES = 3


def masks(images: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Predicted and true masks with every class, pixels that do not count, and pixels of no class."""
    generator = torch.Generator().manual_seed(3)
    truth = torch.randint(0, CLASSES + 1, (images, 6, 5), generator=generator)
    noise = torch.randint(0, CLASSES + 1, truth.shape, generator=generator)
    # The share of right pixels grows from image to image, so that images differ.
    right = torch.rand(truth.shape, generator=generator) < torch.linspace(0.2, 0.9, images)[:, None, None]
    predicted = torch.where(right, truth, noise)
    truth[:, 0, 0] = 255
    predicted[::2, 1, 1] = 255
    return predicted.to(torch.uint8), truth.to(torch.uint8)


def of_all(predicted: torch.Tensor, truth: torch.Tensor) -> float:
    """As the library counts it."""
    score = MaskScore(CLASSES)
    score.update(predicted, truth)
    return float(score.compute()["mean_iou"])


def pixels(predicted: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """By truth and prediction, in float64."""
    score = MaskScore(CLASSES)
    score.update(predicted, truth)
    return score.confmat[:-1].double()


def test_the_mean_over_images_is_the_mean_iou_of_all_pixels():
    predicted, truth = masks()
    assert float(mean_iou_by_image(predicted, truth).mean()) == pytest.approx(of_all(predicted, truth), rel=1e-6)


def test_classes_that_are_nowhere_have_no_part_in_it():
    predicted, truth = (own.where(own != 2, torch.zeros_like(own)) for own in masks())
    assert float(mean_iou_by_image(predicted, truth).mean()) == pytest.approx(of_all(predicted, truth), rel=1e-6)


def test_a_class_that_is_predicted_and_never_true_counts_with_an_iou_of_0():
    predicted, truth = masks()
    truth[truth == 2] = 0
    assert float(mean_iou_by_image(predicted, truth).mean()) == pytest.approx(of_all(predicted, truth), rel=1e-6)


def test_an_images_pull_is_what_the_mean_iou_gains_by_more_of_it():
    predicted, truth = masks()
    numbers = mean_iou_by_image(predicted, truth)
    all_pixels = pixels(predicted, truth)
    base = float(class_iou(all_pixels).nanmean())
    step = 1e-6  # of an image's weight: a quotient of differences is off by about as much
    for image in range(len(truth)):
        of_image = pixels(predicted[image : image + 1], truth[image : image + 1])
        gain = (float(class_iou(all_pixels + step * of_image).nanmean()) - base) / step
        assert len(truth) * gain == pytest.approx(float(numbers[image]) - base, abs=1e-4)


def test_its_interval_is_that_of_drawing_images_anew():
    predicted, truth = masks(images=60)
    numbers = mean_iou_by_image(predicted, truth)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randint(len(truth), (len(truth),), generator=generator) for _ in range(600)]
    spread = torch.tensor([of_all(predicted[rows], truth[rows]) for rows in drawn]).std()
    half = estimate([numbers.numpy()], same_samples=True).half
    # 600 draws tell a standard deviation to 3 %, three of which are 9 %; 2.0 is Student's quantile.
    assert half == pytest.approx(2.0 * float(spread), rel=0.12)
