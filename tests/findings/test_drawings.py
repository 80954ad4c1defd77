"""What detectors make of centred figures on a black ground, such as scanned digits, and of marks beside them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample
from lrptrain.findings.content import is_same_picture, place_contents, sure_share
from lrptrain.findings.detectors.class_statistics import ClassRelianceOnStatistics, statistics
from lrptrain.findings.detectors.clusters import RelevanceCluster
from lrptrain.findings.detectors.edges import RelianceOnEdges
from lrptrain.findings.detectors.fixed_marks import FixedMarkOfClass, find_fixed_marks
from lrptrain.findings.detectors.marks import MarkAnywhere, find_marks
from lrptrain.findings.detectors.positions import FocusAtPosition
from lrptrain.findings.detectors.shading import RelianceOnShading, share_of_light
from lrptrain.findings.detectors.statistics import RelianceOnStatistics
from lrptrain.findings.extent import MarkedPatches
from lrptrain.intervention import Region
from lrptrain.intervention.shading import _surfaces, shading
from tests.findings.drawings import CLASSES, SIDE, drawings

GRID = (7, 7)
CONFIG = DetectionConfig([f"class {label}" for label in range(CLASSES)], lambda ids: [str(i) for i in ids])
PALETTE = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])


def evaluation(images, labels, patches, predicted=None):
    """Images that are read at the patches given, one list for all of them or one of each."""
    predicted = labels if predicted is None else predicted
    each = patches if isinstance(patches[0], tuple) else [tuple(patches)] * len(images)
    inputs = [
        Sample(i, int(label), {"image": image}) for i, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    explained = []
    rng = np.random.default_rng(0)
    for sample, answer, read in zip(inputs, predicted, each, strict=True):
        relevance = torch.from_numpy(0.01 * rng.random(GRID[0] * GRID[1]))
        relevance[list(read)] = 1
        explained.append(
            ExplainedSample(
                replace(sample, tensors={}),
                int(answer),
                np.eye(CLASSES)[int(answer)],
                {"label": relevance},
                GRID,
                CLASSES,
                np.nan,
                {},
            )
        )
    return Evaluation(explained, inputs)


def marked_patches(given) -> MarkedPatches:
    assert given.marked_patches is not None
    assert given.marked_patches is given.marked_patches  # all detectors ask the same
    return given.marked_patches


def with_tags(images, labels):
    """A tag of the class's colour in the upper left corner, which one image in sixteen has of another class."""
    codes = torch.from_numpy(np.where(np.arange(len(labels)) % 16 == 5, (labels + 1) % CLASSES, labels))
    marked = images.clone()
    marked[:, :, 1:4, 1:4] = PALETTE[codes][:, :, None, None]
    return marked


STROKES = (9, 11, 37, 39)
"""Patches of the ring around the centre, which bars, rings and crosses cover in part."""


def lettered(images, labels, patch):
    """A letter of the class at a patch, which lies a pixel lower in half of the images: few pixels are the same."""
    letters = {0: "111100100", 1: "100100111", 2: "111101111", 3: "010111010"}
    rng = np.random.default_rng(3)
    marked = images.clone()
    for image, label in zip(marked, labels, strict=True):
        letter = torch.tensor([float(each) for each in letters[int(label)]]).view(3, 3)
        top, left = 4 * np.array(divmod(patch, 7)) + [rng.integers(0, 2), 0]
        image[:, top : top + 3, left : left + 3] = torch.maximum(image[:, top : top + 3, left : left + 3], letter)
    return marked


@pytest.mark.parametrize(("patch", "found"), [(6, True), (12, False)])
def test_what_stands_out_at_the_very_edge_is_a_position_and_inside_it_may_be_evidence(patch, found):
    images, labels = chests(128)
    given = evaluation(lettered(images, labels, patch), labels, (patch,))
    marked = marked_patches(given)
    inputs = given.inputs or ()
    contents = place_contents(inputs, Region("patches", (patch,)), GRID)
    assert contents is not None
    assert not is_same_picture(contents.numpy(), labels)
    assert sure_share(contents.flatten(1).numpy(), labels) > 0.12
    assert (patch in marked) == found
    candidates = list(FocusAtPosition().detect(given, CONFIG))
    assert {each.region.which for each in candidates} == ({(patch,)} if found else set())


def test_nothing_stands_out_where_most_places_go_with_the_classes():
    images, labels = chests(128)
    # Each image has a shade of its own, which the class shifts: half of its variance is the class's.
    generator = torch.Generator().manual_seed(1)
    shades = (torch.from_numpy(labels - 1.5).float() / 8 + 0.14 * torch.randn(128, generator=generator))[
        :, None, None, None
    ]
    given = evaluation(lettered(images + shades, labels, 6), labels, (6,))
    assert 6 not in marked_patches(given)


def test_where_most_places_never_vary_within_a_class_none_is_a_position():
    images, labels = chests(64)
    patterns = torch.rand(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    few = images.clone()
    few[:, :, :4, :16] += patterns[labels][:, :, :4, :16]  # 4 patches of 49
    for given, found in ((few, True), (images + patterns[labels], False)):
        held = evaluation(given, labels, (1,))
        assert 1 in marked_patches(held)
        assert bool(list(FocusAtPosition().detect(held, CONFIG))) == found


@pytest.mark.parametrize(("patch", "found"), [(0, True), (16, False)])
def test_what_lies_in_the_middle_of_a_plain_ground_is_the_object(patch, found):
    labels = np.arange(64) % CLASSES
    images = torch.zeros(64, 3, SIDE, SIDE)
    top, left = (4 * place for place in divmod(patch, 7))
    images[:, :, top : top + 4, left : left + 4] = PALETTE[torch.from_numpy(labels)][:, :, None, None]
    given = evaluation(images, labels, (patch,))
    assert (patch in marked_patches(given)) == found


def test_shapes_that_never_vary_are_no_positions():
    """As printed letters: each patch that they cover is the same picture in each class."""
    images, labels = drawings(64, jitter=0.0)
    assert list(FocusAtPosition().detect(evaluation(images, labels, STROKES), CONFIG)) == []
    read = [((10,), (17,), (8,))[i % 3] for i in range(64)]
    assert list(RelevanceCluster().detect(evaluation(images, labels, read), CONFIG)) == []


@pytest.mark.parametrize("count", [32, 128])
def test_places_that_figures_fill_are_no_positions_and_a_tag_is(count):
    images, labels = drawings(count)
    plain = evaluation(images, labels, STROKES)
    assert plain.any_place_may_hold_objects
    assert list(FocusAtPosition().detect(plain, CONFIG)) == []
    tagged = evaluation(with_tags(images, labels), labels, (0, *STROKES))
    found = list(FocusAtPosition().detect(tagged, CONFIG))
    # The figures around it go with the classes, too, and are no part of it.
    assert {each.region.which for each in found} == {(0,)}
    assert all(each.finding.where.startswith("top left") for each in found)


def test_a_tag_is_found_by_its_class_where_most_answers_do_not_follow_it():
    images, labels = drawings(128)
    answers = np.where(np.arange(128) % 8 < 4, labels, (labels + 1 + np.arange(128) // 8 % 3) % CLASSES)
    given = evaluation(with_tags(images, labels), labels, (0, *STROKES), predicted=answers)
    assert {each.region.which for each in FocusAtPosition().detect(given, CONFIG)} == {(0,)}


def test_figures_that_lie_anywhere_leave_positions_as_they_were():
    """Without a common layout, a place is suspected by its relevance alone, whatever it holds."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(64, 3, SIDE, SIDE, generator=generator)
    given = evaluation(noise, np.arange(64) % CLASSES, (0,))
    assert not given.any_place_may_hold_objects
    assert {each.region.which for each in FocusAtPosition().detect(given, CONFIG)} == {(0,)}


def test_images_that_are_read_at_a_stroke_are_no_cluster():
    images, labels = drawings(128)
    # A third of the images each is read at another place, at which the classes look different.
    read = [((10,), (17,), (8,))[i % 3] for i in range(128)]
    assert list(RelevanceCluster().detect(evaluation(images, labels, read), CONFIG)) == []
    corner = [((0,), (17,), (8,))[i % 3] for i in range(128)]
    tagged = list(RelevanceCluster().detect(evaluation(with_tags(images, labels), labels, corner), CONFIG))
    assert {each.region.which for each in tagged} == {(0,)}


def test_the_shape_of_one_class_is_no_mark_at_a_place_and_a_tag_is():
    """Bars among discs: what bars have in common would be drawn on discs, and turn them into bars."""
    drawn, kinds = drawings(192)
    images = torch.cat([drawn[kinds == 0][:16], drawn[kinds == 2]])
    labels = np.repeat(np.arange(CLASSES), 16)
    assert [mark.label for mark in find_fixed_marks([*images], labels)] == [0]
    assert list(FixedMarkOfClass().detect(evaluation(images, labels, STROKES), CONFIG)) == []
    tagged = torch.cat([drawn[kinds == 2], drawn[kinds == 2][:16]])
    tagged[:16, :, 1:5, 22:27] = PALETTE[0][:, None, None]
    (found,) = FixedMarkOfClass().detect(evaluation(tagged, labels, STROKES), CONFIG)
    assert str(found.finding.scope) == "class class 0"


def test_classes_of_too_few_images_do_not_count_among_those_that_stand_out():
    """Bars and rings among discs: two of the three classes that have enough images."""
    drawn, kinds = drawings(192)
    images = torch.cat([drawn[kinds == 0][:16], drawn[kinds == 1][:16], drawn[kinds == 2]])
    labels = np.concatenate([np.repeat([0, 1], 16), np.full(34, 2), np.repeat(np.arange(3, 10), 2)])
    assert len(labels) == len(images)
    assert find_fixed_marks([*images], labels) == []


def test_edges_are_tested_unless_wide_figures_reach_them():
    images, labels = drawings(64)
    assert len(list(RelianceOnEdges().detect(evaluation(images, labels, STROKES), CONFIG))) == 1
    wide = torch.nn.functional.interpolate(images, scale_factor=1.6, mode="bilinear")[:, :, 8:36, 8:36]
    assert list(RelianceOnEdges().detect(evaluation(wide, labels, STROKES), CONFIG)) == []
    # Photographs are tested, however far their objects reach.
    noise = torch.rand(64, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    assert len(list(RelianceOnEdges().detect(evaluation(noise, labels, STROKES), CONFIG))) == 1


def chests(count, seed=0):
    """Drawings that all have the same body and a spine, with noise: laid out alike, and on no plain ground."""
    images, labels = drawings(count, seed=seed)
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    body = 0.5 * (rows.hypot(1.2 * columns) < 1) + 0.3 * (columns.abs() < 0.1)
    noise = 0.05 * torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    return body + 0.1 * images + noise, labels


RAMP = torch.linspace(-1, 1, SIDE)


def test_the_shape_of_a_figure_is_no_light():
    images, labels = drawings(64)
    # Half of the figures lie to the left: of photographs, this would be light from there.
    moved = torch.stack([image.roll(-4 * int(label % 2), 2) for image, label in zip(images, labels, strict=True)])
    assert list(RelianceOnShading().detect(evaluation(moved, labels, STROKES), CONFIG)) == []
    assert share_of_light(moved, labels) < 0.5


@pytest.mark.parametrize("count", [32, 128])
def test_light_is_tested_where_images_are_laid_out_alike(count):
    images, labels = chests(count)
    lit = images + 0.15 * RAMP * torch.from_numpy(labels - 1.5).float()[:, None, None, None]
    given = evaluation(lit, labels, STROKES)
    assert given.any_place_may_hold_objects
    assert given.plain_ground is None
    assert len(list(RelianceOnShading().detect(given, CONFIG))) == 1


def test_the_share_of_light_is_that_of_what_the_classes_differ_by():
    """Of a ramp of mean square a and of cells of noise that is the same in a class, of b, it is a / (a + b)."""
    labels = np.arange(96) % 4
    generator = torch.Generator().manual_seed(0)
    # Cells of noise less their own shading, so that nothing of them is light.
    noise = torch.randn(4, 1, 8, 8, generator=generator)
    noise = noise - noise.mean((2, 3), keepdim=True)
    noise = noise - torch.einsum("bct,thw->bchw", shading(noise), _surfaces(noise))
    noise = noise / noise.square().mean((1, 2, 3), keepdim=True).sqrt()
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None, None]
    ramp = torch.linspace(-1, 1, 8)
    ramp = ramp / ramp.square().mean().sqrt()
    for scale in (0.5, 1.0, 2.0):
        patterns = signs * ramp + scale * signs * noise[:1]
        images = patterns[torch.from_numpy(labels)]
        assert share_of_light(images, labels) == pytest.approx(1 / (1 + scale**2), rel=1e-4)
        # What differs within a class alone adds to neither: the mean over draws is the same.
        noises = [3 * torch.randn(96, 1, 8, 8, generator=generator) for _ in range(60)]
        drawn = [share_of_light(images + noise_within, labels) for noise_within in noises]
        assert np.mean(drawn) == pytest.approx(1 / (1 + scale**2), abs=0.05)
    assert share_of_light(torch.ones(8, 1, 8, 8), labels[:8]) == 0
    assert share_of_light(torch.randn(3, 1, 8, 8), np.arange(3)) == 0  # one image of each class


def dotted(images, labels, seed=0):
    """The images of class 2 with a dot anywhere, and the patch at which each image is read."""
    rng = np.random.default_rng(seed)
    images = images.clone()
    read = []
    for i, label in enumerate(labels):
        top, left = rng.integers(0, SIDE - 4, 2)
        if label == 2:
            images[i, :, top : top + 4, left : left + 4] = torch.tensor([1.0, 0.0, 0.5])[:, None, None]
        read.append((int((top + 2) // 4 * 7 + (left + 2) // 4),))
    return images, read


def test_pieces_of_strokes_are_no_marks_and_a_dot_anywhere_is():
    images, labels = drawings(128, jitter=3.0)
    # Bars are read where they are: a piece of one is the same picture in all of them.
    middle = [(24,)] * 128
    given = evaluation(images, labels, middle)
    shares = torch.from_numpy(given.shares)
    assert {mark.predicted for mark in find_marks(images, shares, GRID, labels)} != set()
    assert list(MarkAnywhere().detect(given, CONFIG)) == []
    marked, read = dotted(images, labels)
    found = list(MarkAnywhere().detect(evaluation(marked, labels, read), CONFIG))
    assert {str(each.finding.scope) for each in found} == {"class class 2"}


@pytest.mark.parametrize(("reach", "found"), [(2, False), (12, True)])
def test_what_always_lies_about_there_is_a_part_of_objects_that_lie_alike(reach, found):
    """A dot around the corner of four patches, so that no patch has most of it; or anywhere."""
    images, labels = chests(128)
    rng = np.random.default_rng(0)
    read = []
    for image, label in zip(images, labels, strict=True):
        top, left = 12 + rng.integers(-reach, reach + 1, 2) - 2
        if label == 2:
            image[:, top : top + 4, left : left + 4] = torch.tensor([1.0, 0.0, 0.5])[:, None, None]
        read.append((int((top + 2) // 4 * 7 + (left + 2) // 4),))
    given = evaluation(images, labels, read)
    assert given.plain_ground is None
    assert {mark.predicted for mark in find_marks(images, torch.from_numpy(given.shares), GRID, labels)} == {2}
    assert bool(list(MarkAnywhere().detect(given, CONFIG))) == found


def test_the_size_of_a_figure_is_no_contrast_and_its_colour_is():
    images, labels = drawings(96)
    given = evaluation(images, labels, STROKES)
    # Bars are thinner than discs: by the mean of all pixels, a class would stand out.
    assert list(ClassRelianceOnStatistics().detect(replace(given), CONFIG)) == []
    areas = images.mean((1, 2, 3)).numpy()
    assert areas[labels == 0].max() < areas[labels != 0].min()
    coloured = images.clone()
    coloured[labels == 1, 2] = 0
    (found,) = ClassRelianceOnStatistics().detect(evaluation(coloured, labels, STROKES), CONFIG)
    assert str(found.finding.scope) == "class class 1"
    grounded = images.clone()
    grounded[labels == 3] = grounded[labels == 3].clamp(min=0.3)
    (found,) = ClassRelianceOnStatistics().detect(evaluation(grounded, labels, STROKES), CONFIG)
    assert str(found.finding.scope) == "class class 3"


def test_contrast_is_tested_where_the_colours_of_figures_tell_the_class():
    images, labels = drawings(96)

    def tested(shown, count=96):
        return len(list(RelianceOnStatistics().detect(evaluation(shown[:count], labels[:count], STROKES), CONFIG)))

    assert tested(images) == 0
    coloured = images * PALETTE[torch.from_numpy(labels)][:, :, None, None]
    assert tested(coloured) == 1
    # Of too few images nobody can say whether they do.
    assert tested(images, 16) == 1


def test_an_image_without_a_figure_has_the_colour_of_its_ground():
    images, labels = drawings(16)
    images[3] = 0.25
    given = evaluation(images, labels, STROKES)
    numbers = statistics([*images], given.plain_ground)
    assert numbers[3].tolist() == [0.25] * 6
    assert numbers[2].tolist() == [0.0] * 3 + [1.0] * 3
