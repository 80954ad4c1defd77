"""Marks in random places: who has them, and who is silent."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample, Scope
from lrptrain.findings.detectors.marks import MOST_JUDGES, MarkAnywhere, MarkOfClass, _leads, find_marks, mark_in
from lrptrain.findings.facts import fact_of
from lrptrain.findings.halves import SPLIT_FROM
from lrptrain.findings.verdicts import demanded_effect
from lrptrain.intervention.parts import where_it_lies

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])
GRID = (6, 6)


def planted(count=64, kind="mark", size=24):
    """Noise; in half of the images a dot, read at its place, in the other half nothing, read anywhere."""
    rng = np.random.default_rng(0)
    cell = size // 6
    images = torch.from_numpy(rng.random((count, 3, size, size))).float()
    labels = np.arange(count) % 4 // 2  # 0 0 1 1: both classes among suspects and judges
    relevance = torch.from_numpy(0.1 * rng.random((count, 36)))
    for i in range(count):
        # In the middle: two of the six patches from either edge.
        low, high = (2 * cell, size - 3 * cell) if kind == "middle" else (0, size - cell)
        top, left = (2 * cell, 3 * cell) if kind == "fixed" else rng.integers(low, high, 2)
        relevance[i, (top + cell // 2) // cell * 6 + (left + cell // 2) // cell] = 5
        marked = labels[i] == 1 or kind == "everywhere"
        if marked and kind != "noise":
            images[i, :, top : top + cell, left : left + cell] = torch.tensor([1.0, 0.0, 0.5])[:, None, None]
    return images, labels, relevance


def marks(kind, **options):
    images, labels, relevance = planted(kind=kind, **options)
    return find_marks(images, relevance / relevance.sum(1, keepdim=True), GRID, labels)


@pytest.mark.parametrize("size", [24, 96])
def test_a_dot_anywhere_is_the_mark_of_its_class(size):
    images, labels, _ = planted(size=size)
    (mark,) = marks("mark", size=size)
    assert mark.predicted == 1
    assert mark.lead > 0.9
    assert len(mark.members) >= 0.9 * (labels == 1).sum()
    assert (labels[mark.members] == 1).all()
    top, left, bottom, right = mark.box
    piece = images[mark.image, :, top:bottom, left:right]
    dot = (piece == torch.tensor([1.0, 0.0, 0.5])[:, None, None]).all(0)
    assert float(dot.float().mean()) >= 0.36  # at least the piece itself, 3 x 3 of the 5 x 5 with its rim


def test_a_dot_that_is_smaller_than_a_piece_is_found_by_pieces_of_half_the_size():
    """A dot of 4 pixels where patches have 8: a piece of the usual size holds more of the ground than of the dot."""
    rng = np.random.default_rng(0)
    size = 48
    images = torch.from_numpy(rng.random((64, 3, size, size)))
    labels = np.arange(64) % 4 // 2
    relevance = torch.from_numpy(0.1 * rng.random((64, 36)))
    rows, columns = np.mgrid[:size, :size]
    for i in range(64):
        middle = rng.uniform(2, size - 3, 2)
        relevance[i, int(middle[0] * 6 / size) * 6 + int(middle[1] * 6 / size)] = 5
        if labels[i] == 1:
            cover = torch.from_numpy(np.clip(2.7 - np.hypot(rows - middle[0], columns - middle[1]), 0, 1))
            images[i] += cover * (torch.tensor([3.0, 0.0, 0.5])[:, None, None] - images[i])
    (mark,) = find_marks(images, relevance / relevance.sum(1, keepdim=True), GRID, labels)
    assert (mark.predicted, mark.factor) == (1, 1)
    assert mark.lead > 0.8
    boxes = mark_in(images, images[mark.image], mark, GRID)
    assert np.mean([box is not None for box in np.array(boxes, dtype=object)[labels == 1]]) > 0.8
    assert all(box is None for box in np.array(boxes, dtype=object)[labels == 0])


def test_a_mark_at_the_lower_or_right_edge_is_found():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(48, 3, 48, 48, generator=generator)
    labels = np.arange(48) % 2
    tag = 3 * torch.rand(3, 6, 6, generator=generator)
    relevance = torch.full((48, 36), 0.01)
    for i in range(0, 48, 2):
        left = 7 * int(torch.randint(0, 7, (), generator=generator))
        images[i, :, 42:, left : left + 6] = tag
        relevance[i, 30 + min(5, (left + 3) // 8)] = 1
    (mark,) = find_marks(images, relevance / relevance.sum(1, keepdim=True), GRID, labels)
    assert (mark.predicted, mark.box.bottom) == (0, 48)


@pytest.mark.parametrize(("size", "diameter"), [(48, 7), (96, 14)])
def test_a_round_dot_at_any_offset_is_one_too(size, diameter):
    """Its middle lies between pixels, its edge is soft, and its square's corners hold none of it."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((64, 3, size, size)))
    labels = np.arange(64) % 4 // 2
    relevance = torch.from_numpy(0.1 * rng.random((64, 36)))
    rows, columns = np.mgrid[:size, :size]
    for i in range(64):
        middle = rng.uniform(diameter / 2 + 1, size - diameter / 2 - 2, 2)
        relevance[i, int(middle[0] * 6 / size) * 6 + int(middle[1] * 6 / size)] = 5
        if labels[i] == 1:
            distance = np.hypot(rows - middle[0], columns - middle[1])
            cover = torch.from_numpy(np.clip(diameter / 2 + 0.5 - distance, 0, 1))
            images[i] += cover * (torch.tensor([1.0, 0.0, 0.5])[:, None, None] - images[i])
    (mark,) = find_marks(images, relevance / relevance.sum(1, keepdim=True), GRID, labels)
    assert mark.predicted == 1
    assert mark.lead > 0.9
    top, left, bottom, right = mark.box
    # The piece is a square of three quarters of a patch, with a quarter as its rim.
    assert diameter < bottom - top <= 1.5 * size / 6
    assert diameter < right - left <= 1.5 * size / 6


@pytest.mark.parametrize("kind", ["noise", "everywhere", "fixed"])
def test_noise_a_dot_of_both_classes_and_one_in_a_fixed_place_are_none(kind):
    assert marks(kind) == []


def with_copies(share=1.0, noise=0.0, count=128):
    """As `planted`, with the dot in so many images of its class, and every copy a little different."""
    images, labels, relevance = planted(count)
    generator = torch.Generator().manual_seed(1)
    dots = (images == torch.tensor([1.0, 0.0, 0.5])[:, None, None]).all(1)  # [n, height, width]
    marked = np.flatnonzero(labels == 1)
    kept = set(marked[: round(share * len(marked))].tolist())
    for i in marked.tolist():
        strength = noise if i in kept else 3.0
        change = strength * torch.randn(images[i].shape, generator=generator)
        images[i] = torch.where(dots[i], images[i] + change, images[i])
    return find_marks(images, relevance / relevance.sum(1, keepdim=True), GRID, labels)


def test_a_mark_is_in_half_more_of_its_class():
    assert with_copies(share=0.44) == []
    (mark,) = with_copies(share=0.56)
    assert 0.5 <= mark.lead < 0.6


def test_copies_of_a_mark_may_differ_by_a_little_of_the_spread_of_pixels():
    # Pixels deviate by 0.29 or so, of which 0.15 is the bound; two copies differ by sqrt(2) times their noise.
    (mark,) = with_copies(noise=0.10 * 0.29 / 2**0.5)
    assert mark.lead > 0.8
    assert with_copies(noise=0.30 * 0.29 / 2**0.5) == []


def test_an_image_is_no_witness_of_its_own_piece():
    of_class = np.array([True] * 5 + [False] * 4)
    has_it = torch.tensor([[1, 1, 0, 0, 0, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0, 0, 0]], dtype=torch.bool)
    # Of the four others of the class one has the first piece, and one of four of another class. The second: all, none.
    assert _leads(has_it, of_class, 0).tolist() == [0.0, 1.0]
    assert _leads(has_it, of_class, 4).tolist() == [0.25, 1.0]


def evaluation(annotated=None, kind="mark", count=64, without=()):
    images, labels, relevance = planted(count, kind)
    for row in without:
        images[row] = torch.rand(images[row].shape, generator=torch.Generator().manual_seed(row))
    inputs = [Sample(i, int(labels[i]), {"image": image}) for i, image in enumerate(images)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": row}, GRID, 2, np.nan, {}, annotated
        )
        for each, row in zip(inputs, relevance, strict=True)
    ]
    return Evaluation(explained, inputs, epoch=1, step=2)


@pytest.mark.parametrize("count", [64, SPLIT_FROM])
def test_of_many_images_half_suspects_and_the_other_half_judges_in_other_classes(count):
    given = evaluation(count=count)
    found, taken_away = MarkAnywhere().detect(given, CONFIG)
    assert found.finding.scope == Scope("class", "dog")
    assert isinstance(found.region.which, tuple)
    assert found.finding.samples >= 0.9 * (count // 2 if count < SPLIT_FROM else count // 4)
    suspected = [*found.finding.worst_samples, found.region.which[0]]
    assert all(row % 2 == 1 for row in suspected) == (count == SPLIT_FROM)
    assert (found.rows % 2 == 0).all() == (count == SPLIT_FROM)
    assert len(found.rows) == min(MOST_JUDGES, count // 2 if count < SPLIT_FROM else count // 4)
    assert (taken_away.rows % 2 == 0).all() == (count == SPLIT_FROM)
    assert len(taken_away.rows) >= 0.9 * (count // 2 if count < SPLIT_FROM else count // 4)
    assert {given.samples[row].predicted for row in taken_away.rows} == {1}
    assert {given.samples[row].predicted for row in found.rows} == {0}
    assert found.finding.relevance is not None
    assert found.finding.relevance.effect > 0.5
    # A dot of the size of a patch lies on up to four of them.
    assert 1 / 36 < found.finding.relevance.reference <= 4 / 36
    # By its picture it is found in images of nobody's evaluation.
    assert found.finding.part == taken_away.finding.part
    assert found.finding.part is not None
    assert found.finding.part.name == f"{found.finding.where} in class dog"
    images, labels, _ = planted(40)
    lies_there = where_it_lies(found.finding.part, {"image": images}).flatten(1).any(1)
    assert np.array_equal(lies_there.numpy(), labels == 1)


def test_a_mark_in_the_middle_may_be_a_logo_on_the_object_and_is_for_a_person_to_judge():
    anywhere = list(MarkAnywhere().detect(evaluation(), CONFIG))
    middle = list(MarkAnywhere().detect(evaluation(kind="middle"), CONFIG))
    assert [replace(each.finding, state="confirmed").is_fault for each in anywhere] == [True, True]
    assert [replace(each.finding, state="confirmed").is_fault for each in middle] == [False, False]
    # Taken away, a part of an object moves sound models further than a sticker that they do not read.
    assert [demanded_effect(each.finding, 0.05) for each in anywhere] == [0.1, 0.15]
    assert [demanded_effect(each.finding, 0.05) for each in middle] == [0.1, 0.3]


def test_a_mark_is_taken_away_where_it_lies_in_each_image_and_both_tests_are_one_fact():
    images, _, _ = planted()
    pasted, taken_away = MarkAnywhere().detect(evaluation(without=[2, 7]), CONFIG)
    assert not {2, 7} & {*taken_away.rows.tolist()}
    assert taken_away.finding.kind == MarkOfClass.kind
    assert fact_of(taken_away.finding) == fact_of(pasted.finding)
    assert len(taken_away.region.boxes) == len(images)
    dots = (images == torch.tensor([1.0, 0.0, 0.5])[:, None, None]).all(1)  # [n, height, width]
    with_box = [row for row, box in enumerate(taken_away.region.boxes) if box is not None]
    assert with_box == taken_away.rows.tolist()
    for row in with_box:
        box = taken_away.region.boxes[row]
        assert box is not None
        # The dot has 4 x 4 pixels; the box holds at least the piece that was compared, of 3 x 3, and a rim.
        assert int(dots[row, box.top : box.bottom, box.left : box.right].sum()) >= 9
        assert box.height * box.width <= 36


@pytest.mark.parametrize("size", [24, 96])
def test_a_mark_lies_nowhere_in_images_without_it(size):
    images, labels, _ = planted(size=size)
    (mark,) = marks("mark", size=size)
    boxes = mark_in(images, images[mark.image], mark, GRID)
    assert [box is not None for box in boxes] == (labels == 1).tolist()
    # Of one colour, a dot holds the piece at several places, half a square apart.
    assert np.abs(np.subtract(boxes[mark.image], mark.box)).max() <= size // 24
    dots = (images == torch.tensor([1.0, 0.0, 0.5])[:, None, None]).all(1)  # [n, height, width]
    for dot, box in zip(dots, boxes, strict=True):
        if box is not None:
            assert int(dot[box.top : box.bottom, box.left : box.right].sum()) >= 9 / 16 * int(dot.sum())


def test_it_looks_where_nobody_annotated_and_an_intervention_follows():
    assert list(MarkAnywhere().detect(evaluation(np.ones(36, bool)), CONFIG)) == []
    assert list(MarkAnywhere().detect(replace(evaluation(), inputs=None), CONFIG)) == []
    short = evaluation()
    assert list(MarkAnywhere().detect(Evaluation(short.samples[:9], short.inputs[:9]), CONFIG)) == []
