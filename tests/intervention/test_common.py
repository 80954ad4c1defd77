"""What the images of a class have in common at a place, drawn on other images."""

from typing import Any

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects, is_by_donors, strategy_of
from lrptrain.intervention.common import FEWEST_IMAGES, drawn_at_random, pictures_in_common, with_picture
from lrptrain.intervention.regions import pixels
from lrptrain.intervention.statistics import ValueRange

LABELS = np.repeat(np.arange(4), FEWEST_IMAGES)
INSIDE = torch.zeros(8, 8, dtype=torch.bool)
INSIDE[3:5, 2:6] = True
REGION = Region("common", (1, 8, 8, *INSIDE.flatten().nonzero().flatten().tolist()))


def images_of_colours():
    """Every class of a colour of its own, every image of a brightness of its own; a mark of 0.5 on class 1."""
    brightness = torch.linspace(0, 0.2, FEWEST_IMAGES).repeat(4)
    images = (torch.from_numpy(LABELS) * 0.1 + brightness).float()[:, None, None, None].repeat(1, 3, 8, 8)
    images[LABELS == 1] += 0.5 * INSIDE
    return images


def test_it_is_the_mark_and_nothing_of_what_reaches_beyond_it():
    pictures = pictures_in_common(list(images_of_colours()), LABELS, 1, INSIDE)
    assert [*pictures] == [1, 0, 2, 3]
    torch.testing.assert_close(pictures[1], (0.5 * INSIDE).expand(3, -1, -1), atol=1e-6, rtol=0)
    # Others are compared without the marked class: they have no hole in its shape.
    for label in (0, 2, 3):
        assert pictures[label].abs().max() < 1e-6


def test_pixels_that_are_no_numbers_do_not_count():
    images = images_of_colours()
    images[8, :, 3, 3] = float("nan")
    images[0, :, 0, 0] = float("inf")
    picture = pictures_in_common(list(images), LABELS, 1, INSIDE)[1]
    assert picture.isfinite().all()
    # The seven others of the class, brighter by 0.1 / 7 in the mean without the darkest one.
    assert picture[0, 3, 3].item() == pytest.approx(0.5 + 0.1 / 7, abs=1e-5)
    assert picture[0, 4, 4].item() == pytest.approx(0.5, abs=1e-5)


def test_a_third_class_is_needed_for_the_control():
    few = np.concatenate([LABELS[LABELS < 2], [2] * FEWEST_IMAGES])
    images = list(images_of_colours()[: len(few)])
    assert [*pictures_in_common(images, few, 1, INSIDE)] == [1, 0, 2]
    few[-1] = 0
    with pytest.raises(ValueError, match="fewer than two other classes"):
        pictures_in_common(images, few, 1, INSIDE)


def test_the_control_is_of_neither_class():
    pictures = {label: torch.full((1, 2, 2), float(label)) for label in range(4)}
    chosen = drawn_at_random(pictures, 1, np.array([0, 0, 2, 3, 3]), [0.0, 0.99, 0.0, 0.49, 0.5])
    assert chosen[:, 0, 0, 0].tolist() == [2, 3, 0, 0, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pixels_stay_within_their_values_and_others_as_they_are(dtype):
    images = torch.tensor([0.25, 0.5, 1.0, 9.0]).to(dtype).view(1, 1, 2, 2)
    valid = ValueRange(torch.tensor([0.0]), torch.tensor([1.0]))
    drawn = with_picture(images, torch.tensor([-0.5, 0.25, 0.5, 0.0]).view(1, 1, 2, 2), valid)
    assert drawn.dtype == dtype
    assert drawn.flatten().tolist() == [0.0, 0.75, 1.0, 9.0]


def test_its_cells_cover_images_of_any_size():
    # Two by three cells, of which the second of the first row, on 4 x 6 pixels.
    inside = pixels(Region("common", (5, 2, 3, 1)), {"image": torch.zeros(2, 3, 4, 6)}, (7, 7))
    assert inside.shape == (2, 4, 6)
    assert inside[1].nonzero().tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    assert Region("common", (5, 2, 3, 1)).towards == 5
    assert Region("mark", (5, 0, 0, 2, 2)).towards is None


class MarkReader(torch.nn.Module):
    """Answers by the colour, and by class 1 the more, the more the place differs from what is around it."""

    def forward(self, image):
        logits = -200 * (image[:, 0, :1, 0] - torch.arange(4) * 0.1 - 0.1).square()
        place = image[:, 0, 4, 4] - image[:, 0, 0, 0]
        return logits + 40 * place[:, None] * torch.tensor([0.0, 1, 0, 0])


def test_how_far_the_probability_of_the_class_rises_and_not_that_of_the_answer_falls():
    images = images_of_colours()
    samples = [Sample(i, int(LABELS[i]), {"image": image}) for i, image in enumerate(images)]
    known = np.eye(4)[LABELS] * 0.9 + 0.025
    assert strategy_of(REGION, (4, 4), InterventionConfig("fill")) == "common"
    assert not is_by_donors("common")
    rows = np.flatnonzero(LABELS != 1)
    kept = KeptChanges({REGION: [{*rows.tolist()}]}, most=3)
    options: dict[str, Any] = {
        "region": REGION,
        "probabilities": known,
        "grid": (4, 4),
        "config": InterventionConfig(batch_size=5),
    }
    change, control = effects(MarkReader(), samples, rows=rows, computed_rows=rows, kept=kept, **options)
    with torch.no_grad():
        plain = MarkReader()(images).softmax(1)[rows, 1].numpy()
        # No pixel of any image is brighter than 0.8.
        marked = torch.where(INSIDE, (images + 0.5).clamp(max=0.8), images)
        drawn = MarkReader()(marked).softmax(1)[rows, 1].numpy()
    np.testing.assert_allclose(change, drawn - 0.025, atol=1e-4)
    np.testing.assert_allclose(control, plain - 0.025, atol=1e-4)
    assert np.median(change) > 0.9
    for each in kept.changes.values():
        assert (each.changed["image"] - each.control["image"])[:, 4, 4].min() > 0.25
    unlabelled = [Sample(i, -1, each.tensors) for i, each in enumerate(samples)]
    same, _ = effects(MarkReader(), unlabelled, rows=rows, computed_rows=rows, **options)
    np.testing.assert_allclose(same, change, atol=1e-6)
    known[[0, 9]] = known[[9, 0]]  # the answers of two images are wrong: the labels say whose mark it is
    other, _ = effects(MarkReader(), samples, rows=rows[1:], computed_rows=rows[1:], **options)
    np.testing.assert_allclose(other, change[1:], atol=1e-6)
    known[[0, 9]] = known[[9, 0]]
    half, _ = effects(MarkReader(), samples, rows=rows, computed_rows=rows[5:], **options)
    np.testing.assert_allclose(half, change[5:], atol=1e-6)
