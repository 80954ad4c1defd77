"""Something drawn at one place in the images of one class: found by the images, and silent where there is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample, Scope
from lrptrain.findings.detectors.fixed_marks import (
    LEAST_DEVIATION,
    LEAST_PEAK,
    LEAST_SHARE,
    MOST_JUDGES,
    FixedMarkOfClass,
    _detail,
    _deviations,
    _evidence,
    _mark_around_peaks,
    _others,
    _patches,
    _share_alike,
    _sums,
    _z_values,
    find_fixed_marks,
)
from lrptrain.findings.finding import Evidence
from lrptrain.findings.sentences import sentences

CLASSES = 10
PER_CLASS = 12
MARKED = 3
NAMES = [f"kind {i}" for i in range(CLASSES)]
CONFIG = DetectionConfig(NAMES, lambda ids: [str(i) for i in ids])
GRID = (8, 8)
MIDDLE = (13, 19, 4, 28)
CORNER = (25, 31, 1, 13)


def letters(place, size=32):
    """Strokes of one cell, every other one of three columns."""
    top, bottom, left, right = place
    drawn = torch.zeros(32, 32)
    drawn[top:bottom, left:right:3] = 1
    drawn[top, left:right] = 1
    return F.interpolate(drawn[None, None], (size, size), mode="nearest")[0, 0]


def pictures(opacity=0.0, place=MIDDLE, *, size=32, classes=CLASSES, marked=(MARKED,), share=1.0, seed=0):
    """Smooth noise with grain, of hues that tell the classes; faint letters on a share of the marked ones."""
    generator = torch.Generator().manual_seed(seed)
    count = classes * PER_CLASS
    labels = np.repeat(np.arange(classes), PER_CLASS)
    coarse = torch.randn(count, 3, 7, 7, generator=generator)
    images = F.interpolate(coarse, (size, size), mode="bilinear")
    images += F.interpolate(0.3 * torch.randn(count, 3, 32, 32, generator=generator), (size, size), mode="bilinear")
    images += torch.randn(classes, 3, 1, 1, generator=generator)[torch.from_numpy(labels)]
    cover = opacity * letters(place, size)
    for label in marked:
        for i in np.flatnonzero(labels == label)[: round(share * PER_CLASS)]:
            images[i] = (1 - cover) * images[i] + cover * 3
    return images, labels


def marks(*arguments, **options):
    images, labels = pictures(*arguments, **options)
    return find_fixed_marks(list(images), labels)


@pytest.mark.parametrize("size", [32, 48, 96, 224])
@pytest.mark.parametrize("place", [MIDDLE, CORNER])
def test_faint_letters_on_one_class_of_ten_are_found_where_they_are(place, size):
    (mark,) = marks(0.4, place, size=size)
    assert mark.label == MARKED
    assert mark.peak >= LEAST_PEAK
    assert mark.share == 1
    drawn = letters(place, mark.cells.shape[0]).numpy() > 0 if size == 32 else None
    if drawn is not None:
        assert mark.cells[drawn].mean() > 0.9
    rows, columns = (index / mark.cells.shape[0] * 32 for index in mark.cells.nonzero())
    top, bottom, left, right = place
    # Detail reaches a cell beyond a stroke, evidence another one, and the rim a third.
    assert rows.min() >= top - 3
    assert rows.max() <= bottom + 2
    assert columns.min() >= left - 3
    assert columns.max() <= right + 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [3, 10])
def test_pictures_with_nothing_on_them_have_no_mark(seed, classes):
    images, labels = pictures(seed=seed, classes=classes)
    assert find_fixed_marks(list(images), labels) == []
    detail = _detail(images)
    peaks = [float(_evidence(_deviations(detail, labels == each, _sums(detail))).max()) for each in range(classes)]
    # The mean of 27 squared z-values that are hardly independent (3 x 3 cells of a smoothed difference): the largest of
    # 1,024 of them lies between 2 and the bound of which half is usual in photographs.
    assert 2 < max(peaks) < 0.8 * LEAST_PEAK


def test_a_mark_on_two_thirds_of_a_class_is_no_mark_of_the_class():
    assert marks(0.6)
    images, labels = pictures(1.0, share=2 / 3)
    detail = _detail(images)
    # Something is surely drawn, but on too few.
    assert _evidence(_deviations(detail, labels == MARKED, _sums(detail))).max() > 1.2 * LEAST_PEAK
    assert _share_alike(detail, labels == MARKED) < LEAST_SHARE - 0.05
    assert find_fixed_marks(list(images), labels) == []


def test_of_two_classes_the_other_one_would_stand_out_as_much():
    assert marks(0.6, classes=2, marked=(1,)) == []
    assert [mark.label for mark in marks(1.0, classes=3, marked=(1,))] == [1]


def test_a_class_that_lacks_the_mark_of_another_one_does_not_stand_out():
    parts = [pictures(1.0, classes=3, marked=(1,), seed=seed) for seed in range(3)]
    images = torch.cat([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    detail = _detail(list(images))
    for unmarked in (0, 2):
        assert _evidence(_deviations(detail, labels == unmarked, _sums(detail))).max() > 1.2 * LEAST_PEAK
    # All three would, if the marked images were not left out, and then there were no mark.
    assert [mark.label for mark in find_fixed_marks(list(images), labels)] == [1]


def test_two_marked_classes_of_ten_are_two_marks_and_four_are_shapes_of_their_own():
    assert {mark.label for mark in marks(0.6, marked=(2, 5))} == {2, 5}
    images, labels = pictures()
    shapes = torch.randn(CLASSES, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    assert len(find_fixed_marks(_with_shapes(images, labels, shapes, 3), labels)) == 3
    assert find_fixed_marks(_with_shapes(images, labels, shapes, 4), labels) == []


def _with_shapes(images, labels, shapes, count):
    shown = shapes.clone()
    shown[count:] = 0
    shown[..., :22] = 0  # a third of the image
    return list(images + shown[torch.from_numpy(labels)])


def test_a_picture_all_over_the_images_is_no_mark():
    images, labels = pictures()
    everywhere = torch.randn(1, 32, 32, generator=torch.Generator().manual_seed(1))
    images[labels == MARKED] += everywhere
    assert find_fixed_marks(list(images), labels) == []


def test_pixels_in_16_bits_or_that_are_no_numbers_and_grounds_of_one_colour_do_no_harm():
    images, labels = pictures(0.6)
    (mark,) = find_fixed_marks(list(images.bfloat16()), labels)
    assert mark.label == MARKED
    images[0, 0, 0, 0] = float("nan")
    images[1, 0, 0, 0] = float("inf")
    (mark,) = find_fixed_marks(list(images), labels)
    assert mark.label == MARKED
    assert LEAST_PEAK <= mark.peak < np.inf
    assert 0 < mark.cells.sum() < mark.cells.size / 2
    assert find_fixed_marks(list(torch.zeros_like(images)), labels) == []
    assert find_fixed_marks(list(torch.full_like(images, float("nan"))), labels) == []
    grey = pictures(0.6)[0].mean(1, keepdim=True)
    assert [each.label for each in find_fixed_marks(list(grey), labels)] == [MARKED]


def test_detail_is_the_same_in_any_unit_of_the_pixels_and_bounded():
    images, _ = pictures(size=96)
    detail = _detail(list(images))
    assert detail.shape == (CLASSES * PER_CLASS, 3, 48, 48)
    torch.testing.assert_close(_detail(list(50 * images + 7)), detail, atol=1e-3, rtol=1e-3)
    # The unit holds at least a ninth of the cell's own power, which is the mean over three channels.
    assert detail.abs().max() <= (9 * 3) ** 0.5
    step = torch.zeros(1, 1, 6, 6)
    step[..., 3:] = 1
    beside = _detail([step[0]])
    # Beside a step, a cell differs from the mean around it by a third; the power is 1/9 in two columns of six. So the
    # unit is (2/3 * 1/9) ** 0.5 + (1/3 * 1/9) ** 0.5 = 0.272 + 0.192.
    assert beside[0, 0, 3, 3] == pytest.approx(1 / 3 / ((2 / 27) ** 0.5 + (1 / 27) ** 0.5))
    assert beside[0, 0, 3, 2].item() == pytest.approx(-beside[0, 0, 3, 3].item())
    assert beside[0, 0, 3, 0].abs() < 1e-6


def test_z_values_count_both_sides_and_the_deviation_of_the_others():
    ones = torch.ones(1, 4, 4)
    # 1 / (0.5 * (1/4 + 1/12) ** 0.5)
    others = _others(torch.zeros(1, 4, 4), 12 * 0.25 * ones, 12)
    torch.testing.assert_close(_z_values(ones, 4, others), 3.4641 * ones, atol=1e-4, rtol=0)
    assert others.deviation.unique().tolist() == [0.5]
    # One colour everywhere.
    assert _others(12 * ones, 12 * ones, 12).deviation.unique().tolist() == [pytest.approx(LEAST_DEVIATION)]


def test_a_cell_that_deviates_little_by_chance_is_judged_with_its_neighbours():
    variance = torch.ones(2, 5, 5)
    variance[0, 2, 2] = 0.01
    deviation = _others(torch.zeros(2, 5, 5), 8 * variance, 8).deviation
    # Of nine cells of two channels, 17 have 1.
    assert deviation[0, 2, 2].item() == pytest.approx((17.01 / 18) ** 0.5)
    assert deviation[0, 0, 0] == 1


def test_deviations_are_those_of_a_class_and_all_other_images():
    detail = torch.randn(20, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    member = np.arange(20) < 8
    others = detail[8:]
    deviation = F.avg_pool2d(F.pad(others.var(0, correction=0).mean(0)[None, None], (1,) * 4, "replicate"), 3, 1)[0]
    wanted = (detail[:8].mean(0) - others.mean(0)) / (deviation.sqrt() * (1 / 8 + 1 / 12) ** 0.5)
    torch.testing.assert_close(_deviations(detail, member, _sums(detail)), wanted, atol=1e-4, rtol=1e-4)


def test_no_image_is_a_witness_of_itself():
    detail = torch.zeros(24, 1, 8, 8)
    detail += 0.01 * torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    member = np.arange(24) < 8
    detail[0, 0, 3:5, 3:5] = 5
    # A picture in one image alone is not what the others of its class have in common.
    assert _share_alike(detail, member) < 0.75
    detail[:6, 0, 3:5, 3:5] = 5
    assert _share_alike(detail, member) >= 6 / 8


def test_a_mark_goes_on_over_gaps_and_has_a_rim():
    evidence = torch.ones(9, 20)
    evidence[4, 3] = 11
    evidence[4, [5, 7]] = 4.5
    evidence[4, 11] = 9.9  # four cells away from the rest, and no mark by itself
    rows, columns = _mark_around_peaks(evidence).nonzero()
    assert {*rows.tolist()} == {3, 4, 5}
    assert {*columns.tolist()} == {*range(2, 9)}
    assert _patches(_mark_around_peaks(evidence), (3, 5)) == (5, 6, 7)


def evaluation(opacity=0.6, place=MIDDLE, annotated=None):
    images, labels = pictures(opacity, place)
    inputs = [Sample(i, int(labels[i]), {"image": image}) for i, image in enumerate(images)]
    maps = np.random.default_rng(0).random((len(images), 64))
    probabilities = np.eye(CLASSES)[labels]
    explained = [
        ExplainedSample(
            replace(each, tensors={}),
            each.label,
            probability,
            {"label": torch.from_numpy(row)},
            GRID,
            CLASSES,
            np.nan,
            {},
            annotated,
        )
        for each, probability, row in zip(inputs, probabilities, maps, strict=True)
    ]
    return Evaluation(explained, inputs, epoch=1, step=2)


def test_the_candidate_is_of_the_class_and_judged_by_images_that_are_read_as_others():
    explained_images = evaluation()
    (candidate,) = FixedMarkOfClass().detect(explained_images, CONFIG)
    finding = candidate.finding
    assert finding.scope == Scope("class", NAMES[MARKED])
    assert finding.samples == PER_CLASS
    assert "centre" in finding.where
    assert len(candidate.rows) == MOST_JUDGES
    assert {explained_images.samples[row].predicted for row in candidate.rows} == {*range(CLASSES)} - {MARKED}
    assert candidate.region.kind == "common"
    assert candidate.region.towards == MARKED
    assert isinstance(candidate.region.which, tuple)
    assert candidate.region.which[1:3] == (32, 32)
    (mark,) = marks(0.6)
    assert candidate.region.which[3:] == tuple(np.flatnonzero(mark.cells))
    assert finding.relevance is not None
    # The maps are noise: the share of the relevance is that of the patches.
    assert finding.relevance.effect == pytest.approx(finding.relevance.reference, abs=0.03)


def test_the_mark_is_that_of_the_labels_and_judged_where_neither_label_nor_answer_is_the_class():
    explained_images = evaluation()
    # The model reads half of the marked class as another one, and as many of a third class as marked.
    answers = np.roll(np.arange(CLASSES * PER_CLASS) // PER_CLASS, PER_CLASS // 2)
    samples = [
        replace(each, predicted=int(answer)) for each, answer in zip(explained_images.samples, answers, strict=True)
    ]
    (candidate,) = FixedMarkOfClass().detect(replace(explained_images, samples=samples), CONFIG)
    assert candidate.finding.scope == Scope("class", NAMES[MARKED])
    assert candidate.finding.samples == PER_CLASS
    judged = [samples[row] for row in candidate.rows]
    assert MARKED not in {each.predicted for each in judged} | {each.sample.label for each in judged}
    assert MARKED + 1 in {each.sample.label for each in judged}


def test_what_lies_in_the_middle_is_for_a_person_to_judge():
    (middle,) = FixedMarkOfClass().detect(evaluation(), CONFIG)
    (corner,) = FixedMarkOfClass().detect(evaluation(place=CORNER), CONFIG)
    assert not replace(middle.finding, state="confirmed").is_fault
    assert replace(corner.finding, state="confirmed").is_fault


def test_it_looks_at_images_of_one_shape_annotated_or_not_where_an_intervention_follows():
    assert len(list(FixedMarkOfClass().detect(evaluation(annotated=np.ones(64, bool)), CONFIG))) == 1
    explained_images = evaluation()
    assert list(FixedMarkOfClass().detect(replace(explained_images, inputs=None), CONFIG)) == []
    assert explained_images.inputs is not None
    larger = replace(explained_images.inputs[0], tensors={"image": torch.zeros(3, 40, 40)})
    assert (
        list(
            FixedMarkOfClass().detect(replace(explained_images, inputs=[larger, *explained_images.inputs[1:]]), CONFIG)
        )
        == []
    )
    without_grid = [replace(each, grid=None) for each in explained_images.samples]
    assert list(FixedMarkOfClass().detect(replace(explained_images, samples=without_grid), CONFIG)) == []


def test_it_is_said_how_far_the_probability_of_the_class_rises():
    (candidate,) = FixedMarkOfClass().detect(evaluation(place=CORNER), CONFIG)
    evidence = Evidence(0.29, (0.2, 0.4), 0.01, 0.001, 64)
    said = sentences(replace(candidate.finding, state="confirmed", strategy="common", intervention=evidence))
    assert said.verdict.startswith("SHORTCUT confirmed, class kind 3: the model reads what is drawn on")
    assert said.intervention == (
        "Drawn on images of other classes, the class's probability rises by 30 points "
        "(what a third class has in common there: 1)."
    )
    assert "moves the prediction by 30 points, the control by 1" in str(
        replace(candidate.finding, strategy="common", intervention=evidence)
    )
