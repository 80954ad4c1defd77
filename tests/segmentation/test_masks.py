import pytest
import torch
from torchmetrics.segmentation import MeanIoU

from lrptrain.segmentation.masks import ThresholdSweep, best_threshold, label_map, pseudo_masks
from lrptrain.segmentation.scoring import MaskScore


def random_maps(samples=4, classes=3, size=16, seed=0):
    """Maps with absent classes, and masks with every class and ignored pixels."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(samples, classes, size, size, generator=generator, dtype=torch.float64)
    maps[0, 1], maps[1] = 0, 0
    masks = torch.randint(0, classes + 1, (samples, size, size), generator=generator).to(torch.uint8)
    masks[:, :2] = 255
    return maps, masks


def test_by_hand():
    maps = torch.tensor([[[[0.9, 0.2, 0.0, 0.5]], [[0.1, 0.3, 0.0, 0.4]]]])
    assert label_map(maps, 0.25).tolist() == [[[1, 2, 0, 1]]]
    assert label_map(maps, 0.5).tolist() == [[[1, 0, 0, 0]]]
    assert label_map(maps, 0).tolist() == [[[1, 2, 0, 1]]]
    assert pseudo_masks(maps, 0.25, 0.6).tolist() == [[[1, 255, 0, 255]]]
    assert label_map(maps, 0.25).dtype == torch.uint8


def test_two_equal_thresholds_are_one():
    maps, _ = random_maps()
    assert torch.equal(pseudo_masks(maps, 0.4, 0.4), label_map(maps, 0.4))


def test_absent_classes_are_never_chosen():
    maps, _ = random_maps()
    assert not (label_map(maps, 0)[0] == 2).any()
    assert not label_map(maps, 0)[1].any()


def test_the_sweep_equals_one_pass_per_threshold():
    maps, masks = random_maps()
    maps[2, :, :4] = (torch.arange(16) / 100).expand(3, 4, 16)  # values on the thresholds themselves
    sweep = ThresholdSweep(3)
    sweep.update(maps[:1], masks[:1])
    sweep.update(maps[1:], masks[1:])
    expected = []
    for threshold in sweep.thresholds.tolist():
        score = MaskScore(3)
        score.update(label_map(maps, threshold), masks)
        expected.append(score.compute()["mean_iou"])
    torch.testing.assert_close(sweep.scores(), torch.stack(expected).to(sweep.scores()), rtol=0, atol=0)
    assert sweep.best() == best_threshold(maps, masks)
    assert sweep.best()[1] == max(expected)


def test_the_best_threshold_is_found():
    masks = torch.zeros(1, 8, 8, dtype=torch.uint8)
    masks[:, 2:6, 2:6] = 2
    maps = torch.zeros(1, 3, 8, 8)
    maps[:, 1] = torch.where(masks == 2, 0.8, 0.35)
    assert best_threshold(maps, masks) == (pytest.approx(0.35), 1.0)


def test_a_sweep_in_single_precision_agrees_with_its_label_map():
    maps, masks = random_maps()
    threshold, found = best_threshold(maps.float(), masks)
    score = MeanIoU(num_classes=4, per_class=True, input_format="index")
    known = masks != 255
    score.update(label_map(maps.float(), threshold)[known][None].long(), masks[known][None].long())
    assert found == pytest.approx(score.compute().mean().item(), rel=1e-6)


def test_maps_of_some_classes_only():
    maps, masks = random_maps(classes=2)
    masks = masks.masked_fill(masks == 2, 5).masked_fill(masks == 1, 3)  # classes 2 and 4 of six
    classes = torch.tensor([2, 4])
    some, all_ = ThresholdSweep(6), ThresholdSweep(6)
    some.update(maps, masks, classes)
    everything = torch.zeros(4, 6, 16, 16, dtype=maps.dtype)
    everything[:, classes] = maps
    all_.update(everything, masks)
    assert torch.equal(some.scores(), all_.scores())
    assert torch.equal(pseudo_masks(maps, 0.3, 0.6, classes), pseudo_masks(everything, 0.3, 0.6))


def test_nothing_known():
    maps, masks = random_maps()
    threshold, score = best_threshold(maps, torch.full_like(masks, 255))
    assert threshold == 0
    assert score != score  # nan


def test_bad_arguments():
    maps, masks = random_maps()
    for low, high in ((-0.1, 0.5), (0.6, 0.5)):
        with pytest.raises(ValueError, match="thresholds must be 0 or more"):
            pseudo_masks(maps, low, high)
    with pytest.raises(ValueError, match="room for 254 classes"):
        label_map(torch.rand(1, 300, 2, 2), 0.5)
    with pytest.raises(ValueError, match=r"masks \[4, 8, 8\] of 3 classes do not fit"):
        best_threshold(maps, masks[:, :8, :8])
    with pytest.raises(ValueError, match=r"value 9: 0\.\.3 and 255"):
        best_threshold(maps, masks.masked_fill(masks == 1, 9))
