from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import Evaluation, Evidence, ExplainedSample, Finding
from lrptrain.findings.detector import DetectionConfig
from lrptrain.findings.detectors.positions import FocusAtPosition, describe, fixed_positions, lies_in_the_middle
from lrptrain.findings.halves import SPLIT_FROM
from lrptrain.findings.scopes import OVERALL, ScopeMembers, split_into_scopes
from lrptrain.findings.sentences import sentences

GRID = (6, 6)
ALL = [ScopeMembers(OVERALL, np.ones(64, bool))]


def maps(samples=64, seed=0, **extra):
    """Noise, and more at the positions given."""
    values = np.random.default_rng(seed).gamma(1.0, size=(samples, 36))
    for position, more in extra.items():
        values[:, int(position[1:])] += more
    return values / values.sum(1, keepdims=True)


def positions(shares, within=ALL):
    return [place.positions for place in fixed_positions(shares, GRID, within)]


def test_a_corner_that_is_read_in_every_image_is_found():
    (place,) = fixed_positions(maps(p35=10, p5=8), GRID, ALL)
    assert place.positions == (5, 35)
    assert place.p_value == pytest.approx(1e-4)


def test_a_place_has_to_hold_twice_what_lies_nearer_to_the_centre():
    for more, found in ((0.6, []), (1.6, [(35,)])):  # noise has a mean of 1: 1.6 and 2.6 times the others
        shares = maps(512, p35=more)
        everyone = [ScopeMembers(OVERALL, np.ones(512, bool))]
        assert positions(shares, everyone) == found


def rings(centre, middle, border, **extra):
    """Shares of the centre, the ring around it and the border, with a little noise."""
    ring = np.round(np.maximum(*np.abs(np.indices(GRID) - 2.5)).ravel() - 0.5).astype(int)
    values = np.array([centre, middle, border])[ring] * np.random.default_rng(0).uniform(0.9, 1.1, (64, 36))
    for position, share in extra.items():
        values[:, int(position[1:])] = share
    return values / values.sum(1, keepdims=True)


BORDER = tuple(np.flatnonzero(np.maximum(*np.abs(np.indices(GRID) - 2.5)).ravel() > 2).tolist())


def test_less_than_the_share_of_a_uniform_map_is_no_place_however_little_lies_nearer():
    assert positions(rings(1e-6, 1e-6, 1, p7=0.3)) == [BORDER]  # a uniform map has 20.3 / 36 there
    assert positions(rings(1e-6, 1e-6, 1, p7=0.9)) == [tuple(sorted((*BORDER, 7)))]


def test_what_covers_most_of_the_image_is_no_place():
    # Of 36 positions 21 are a place and 22 are not: 0.6 of them are 21.6.
    ring = [i for i in range(36) if i // 6 in (0, 5) or i % 6 in (0, 5)]
    for read in ([*ring, 7], [*ring, 7, 10]):
        found = positions(maps(256, **{f"p{i}": 6 for i in read}), [ScopeMembers(OVERALL, np.ones(256, bool))])
        assert found == ([tuple(sorted(read))] if len(read) == 21 else [])


def test_images_whose_evidence_lies_at_the_place_do_not_judge_it():
    rows = maps(64, p35=40, p14=40)
    inputs = [Sample(i, 0, {"image": torch.zeros(3, 12, 12)}) for i in range(64)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), 0, np.eye(2)[0], {"label": torch.from_numpy(row)}, GRID, 2, np.nan, {},
            annotated=np.arange(36) == (35 if i % 4 == 0 else 14),
        )
        for i, (each, row) in enumerate(zip(inputs, rows, strict=True))
    ]  # fmt: skip
    config = DetectionConfig(["a", "b"], lambda ids: [str(i) for i in ids])
    (found,) = FocusAtPosition().detect(Evaluation(explained, inputs), config)
    assert found.region.which == (35,)
    assert found.rows.tolist() == [i for i in range(64) if i % 4]


@pytest.mark.parametrize(("annotated", "beside"), [(64, True), (32, False), (0, False)])
def test_it_lies_beside_the_evidence_where_all_who_judge_it_are_annotated(annotated, beside):
    rows = maps(64, p35=40)
    inputs = [Sample(i, 0, {"image": torch.rand(3, 12, 12)}) for i in range(64)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), 0, np.eye(2)[0], {"label": torch.from_numpy(row)}, GRID, 2, np.nan, {},
            annotated=np.arange(36) == 14 if i < annotated else None,
        )
        for i, (each, row) in enumerate(zip(inputs, rows, strict=True))
    ]  # fmt: skip
    config = DetectionConfig(["a", "b"], lambda ids: [str(i) for i in ids])
    (found,) = FocusAtPosition().detect(Evaluation(explained, inputs), config)
    assert found.region.which == (35,)
    assert found.finding.beside_evidence == beside


def test_noise_and_the_centre_are_not():
    assert positions(maps()) == []
    assert positions(maps(p14=20, p15=20, p20=20, p21=20)) == []  # objects lie there
    rings = np.maximum(*np.abs(np.indices(GRID) - 2.5)).ravel()
    centred = np.exp(-(rings**2))[None] * maps()
    assert positions(centred / centred.sum(1, keepdims=True)) == []


def test_noise_is_seldom_found_anywhere():
    # Five of a hundred at the level of the test; each would also have to double its reference.
    assert sum(bool(positions(maps(seed=seed) ** 0.5)) for seed in range(20)) <= 1


def test_a_place_of_one_class_is_found_there_alone():
    labels = np.repeat([0, 1], 32)
    shares = np.where((labels == 1)[:, None], maps(p30=12), maps())
    within = split_into_scopes(labels, ["a", "b"])
    positions = {str(place.scope.scope): place.positions for place in fixed_positions(shares, GRID, within[1:])}
    assert positions == {"class b": (30,)}
    # If all samples show it, no class is told apart.
    assert [str(place.scope.scope) for place in fixed_positions(maps(p30=12), GRID, within)] == ["overall"]


def test_places_are_corrected_for_the_number_of_scopes():
    # Eight samples have 256 patterns of signs, of which the observed one is the most extreme.
    scope = ScopeMembers(OVERALL, np.ones(8, bool))
    (place,) = fixed_positions(maps(8, p35=30), GRID, [scope])
    assert place.p_value == pytest.approx(1 / 256)
    several = fixed_positions(maps(8, p35=30), GRID, [scope, scope, ScopeMembers(OVERALL, np.arange(8) < 7)])
    assert several[0].p_value == pytest.approx(2 / 256)  # seven samples are too few to be tested
    assert fixed_positions(maps(8, p35=30), GRID, [scope] * 13) == []  # 13 / 256 is above 0.05


def test_few_samples_and_undefined_maps_are_left_out():
    assert positions(maps(7, p35=30), [ScopeMembers(OVERALL, np.ones(7, bool))]) == []
    shares = maps(p35=30)
    shares[:60] = np.nan
    assert positions(shares) == []


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (2, 2)])
def test_a_grid_without_a_centre_has_no_places(grid):
    scopes = split_into_scopes(np.zeros(20, int), ["a"])
    size = grid[0] * grid[1]
    assert fixed_positions(np.tile(np.eye(size)[0], (20, 1)), grid, scopes) == []


def test_places_have_names():
    border = np.flatnonzero(np.maximum(*np.abs(np.indices(GRID) - 2.5)).ravel() > 2)
    assert describe(border.tolist(), GRID) == "the border (20 of 36 patches)"
    assert describe(list(range(6)), GRID) == "the upper edge (6 of 36 patches)"
    assert describe([5, 11, 17, 23, 29, 35], GRID) == "the right edge (6 of 36 patches)"
    # Along two edges, it is no border.
    assert describe([0, 1, 2, 3, 6, 12], GRID) == "middle left, top centre, top left (6 of 36 patches)"
    assert describe([35], GRID) == "bottom right (1 of 36 patches)"
    assert describe([0, 5], GRID) == "top left, top right (2 of 36 patches)"
    assert describe([14], GRID) == "centre (1 of 36 patches)"


def test_the_middle_is_where_objects_lie():
    # Rows and columns 1 to 4 of 6 are as near to the centre as 0.6, the outermost ring is not.
    assert lies_in_the_middle([7, 14, 28], GRID)
    assert not lies_in_the_middle([0, 5, 30, 35], GRID)
    assert not lies_in_the_middle([7, 1], GRID)  # half of it is no more than half
    assert lies_in_the_middle([7, 14, 1], GRID)
    assert not lies_in_the_middle([7, 14, 1], GRID, 2 / 3)
    assert lies_in_the_middle([7, 8, 1], GRID)


@pytest.mark.parametrize(
    ("positions", "annotated", "doubtful"), [([7], False, True), ([7], True, False), ([0], False, False)]
)
def test_only_without_annotations_may_the_middle_be_the_object(positions, annotated, doubtful):
    shares = maps(16, **{f"p{position}": 20 for position in positions})
    mask = np.arange(36) == 14 if annotated else None
    samples = [
        ExplainedSample(Sample(i, 0, {}), 0, np.ones(1), {"label": torch.from_numpy(row)}, GRID, 1, 0.1, {}, mask)
        for i, row in enumerate(shares)
    ]
    config = DetectionConfig(["a"], lambda ids: [])
    (candidate, *_) = FocusAtPosition().detect(Evaluation(samples), config)
    assert candidate.finding.may_be_evidence == doubtful
    confirmed = replace(candidate.finding, state="confirmed", intervention=Evidence(0.6, (0.5, 0.7), 0.0, 0.001, 16))
    assert confirmed.is_fault != doubtful
    assert confirmed.severity == (0.0 if doubtful else 0.6)
    assert ("for you to judge" in sentences(confirmed).verdict) == doubtful
    assert Finding.from_dict(confirmed.to_dict()) == confirmed


def test_of_many_images_one_half_suspects_and_the_other_half_judges():
    """Odd rows are read in one corner and even ones in another; even ones have something planted beside the first."""
    count = 2 * SPLIT_FROM
    labels = np.arange(count) // 2 % 2
    odd = np.arange(count) % 2 == 1
    images = torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images[~odd, :, :2, 2:4] = torch.from_numpy(labels[~odd]).float()[:, None, None, None]
    shares = np.where(odd[:, None], maps(count, p0=40), maps(count, p35=40))
    inputs = [
        Sample(i, int(label), {"image": image}) for i, (label, image) in enumerate(zip(labels, images, strict=True))
    ]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.eye(2)[each.label], {"label": torch.from_numpy(row)}, GRID, 2,
            np.nan, {},
        )
        for each, row in zip(inputs, shares, strict=True)
    ]  # fmt: skip
    config = DetectionConfig(["a", "b"], lambda ids: [str(i) for i in ids])
    (found,) = FocusAtPosition().detect(Evaluation(explained, inputs), config)
    assert found.region.which == (0,)
    assert found.rows.tolist() == list(range(0, count, 2))
