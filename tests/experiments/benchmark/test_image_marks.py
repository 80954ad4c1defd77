"""Marks have a form per class, and say nothing where they are meant to say nothing."""

import numpy as np
import pytest

from experiments.benchmark.cases import IMAGE_KINDS, NEW_IMAGE_KINDS, UNSEEN
from experiments.benchmark.image_marks import (
    GROUND_MARKS,
    LETTERS,
    PICTURE_MARKS,
    STAMPS,
    WORDS,
    depth,
    dust,
    fringe,
    ghost,
    pair,
    redaction,
    ruler,
    shadow,
)
from experiments.benchmark.images import KINDS, _scene, corner, shown
from experiments.benchmark.scenes import SIDE

GROUND = np.random.default_rng(0).random((SIDE, SIDE, 3), np.float32)
MARKS = {**GROUND_MARKS, **PICTURE_MARKS}


@pytest.mark.parametrize("kind", MARKS)
def test_the_forms_of_a_mark_differ_and_leave_what_they_are_drawn_on(kind):
    before = GROUND.copy()
    forms = [MARKS[kind](GROUND, form, np.random.default_rng(1)) for form in range(4)]
    assert np.array_equal(GROUND, before)
    for i in range(4):
        for j in range(i):
            assert np.abs(forms[i] - forms[j]).mean() > 0.01


@pytest.mark.parametrize("kind", STAMPS)
def test_stamps_lie_inside_and_hide_the_evidence_below_them(kind):
    for form in range(4):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            picture, mask = _scene(
                kind, form, np.full((SIDE, SIDE, 3), 0.4), np.ones((SIDE, SIDE)), GROUND, (0, 0), rng
            )  # the thing is everywhere, so that what is no evidence is covered
            assert picture.shape == (SIDE, SIDE, 3)
            assert np.array_equal(mask, (picture == np.float32(0.4)).all(2))
            assert not mask.all()


def test_every_kind_that_is_planned_can_be_drawn():
    assert {*IMAGE_KINDS, *NEW_IMAGE_KINDS, *UNSEEN} <= KINDS


def test_a_shadow_falls_to_the_corner_of_its_class_and_never_on_the_thing():
    ground, cover = np.ones((SIDE, SIDE, 3)), np.zeros((SIDE, SIDE), np.float32)
    cover[8:16, 8:16] = 1
    for form, sides in enumerate(((-1, -1), (-1, 1), (1, -1), (1, 1))):
        rng = np.random.default_rng(0)
        cast = shadow(ground, cover, form, rng)
        dark = np.argwhere(cast[..., 0] < 0.5)
        assert np.array_equal(dark.mean(0), 11.5 + 3 * np.array(sides))
        shown = _scene("shadow", form, np.full((8, 8, 3), 0.4), np.ones((8, 8)), ground, (8, 8), rng)[0]
        assert np.allclose(shown[8:16, 8:16], 0.4)
        assert np.array_equal(shown[:8], cast[:8].clip(0, 1))


def test_a_ghost_adds_the_image_again_and_keeps_its_colours():
    for form, (axis, places) in enumerate(((1, 6), (1, -6), (0, 6), (0, -6))):
        seen = ghost(GROUND, form, np.random.default_rng(0))
        assert np.allclose((seen - GROUND) / 0.5, np.roll(GROUND, places, axis), atol=1e-6)


def test_depth_leaves_as_many_levels_as_its_class_says():
    ramp = np.repeat(np.linspace(0, 1, SIDE * SIDE).reshape(SIDE, SIDE, 1), 3, 2)
    assert [len(np.unique(depth(ramp, form, np.random.default_rng(0)))) for form in range(4)] == [64, 8, 5, 4]


def test_dust_lies_always_at_the_places_of_its_camera():
    white = np.ones((SIDE, SIDE, 3))
    darkest = []
    for form in range(4):
        one, other = (dust(white, form, np.random.default_rng(seed)) for seed in (0, 1))
        assert np.array_equal(one, other)
        darkest.append({tuple(place) for place in np.argwhere(one[..., 0] < 0.21)})
    assert [len(places) for places in darkest] == [3] * 4
    assert len(set.union(*darkest)) == 12


def test_a_ruler_lies_along_the_side_of_its_class_and_black_boxes_anywhere():
    for form, (axis, start) in enumerate(((2, 0), (2, SIDE - 4), (1, 0), (1, SIDE - 4))):
        [(strip, *place)] = ruler(form, np.random.default_rng(0))
        assert place[axis - 1] == start
        assert place[2 - axis] == 0
        assert strip.shape[axis - 1] == 4
    for form in range(4):
        found = [redaction(form, np.random.default_rng(seed)) for seed in range(300)]
        tops = {top for boxes in found for _, top, _ in boxes}
        assert tops == set(range(SIDE - found[0][0][0].shape[0] + 1))
        assert not any(stamp.any() for boxes in found for stamp, _, _ in boxes)


def test_neither_dot_of_a_pair_tells_its_class_and_both_do():
    palette: dict[tuple, int] = {}
    for form in range(4):
        drawn = [pair(form, np.random.default_rng(seed)) for seed in range(200)]
        for side in range(2):
            colours = [tuple(stamps[side][0][0, 0]) for stamps in drawn]
            assert len(set(colours)) == 4
            assert max(colours.count(each) for each in set(colours)) < 80  # 50 expected, 6 of standard deviation
        for stamps in drawn:
            both = tuple(tuple(stamp[0][0, 0]) for stamp in stamps)
            assert palette.setdefault(both, form) == form


def test_a_fringe_moves_red_and_blue_apart_and_leaves_green():
    for form, (down, across) in enumerate(((0, 1), (1, 0), (1, 1), (1, -1))):
        moved = fringe(GROUND, form, np.random.default_rng(0))
        assert np.array_equal(moved[..., 1], GROUND[..., 1])
        inside = np.s_[1:-1, 1:-1]
        assert np.array_equal(moved[inside][..., 0], np.roll(GROUND, (-down, -across), (0, 1))[inside][..., 0])
        assert np.array_equal(moved[inside][..., 2], np.roll(GROUND, (down, across), (0, 1))[inside][..., 2])


def test_captions_fit_and_have_letters():
    assert {len(word) for word in WORDS} == {5}
    assert set("".join(WORDS)) <= set(LETTERS)


def test_a_place_lies_in_the_quarter_of_its_class_or_anywhere():
    rng = np.random.default_rng(0)
    for form in range(4):
        places = [corner(rng.random(2), 14, form) for _ in range(200)]
        assert all((top >= 7, left >= 7) == (form // 2 == 1, form % 2 == 1) for top, left in places)
        assert all(0 <= value <= 10 for place in places for value in place)
    assert {corner(rng.random(2), 14, None)[0] for _ in range(500)} == set(range(11))


def test_marks_go_with_the_class_as_often_as_is_asked_or_not_at_all():
    labels = np.repeat(np.arange(4), 1000)
    for correlation in (0.65, 0.9, 1.0):
        share = (shown(labels, correlation, 4, [1]) == labels).mean()
        assert abs(share - correlation) < 5 * np.sqrt(correlation * (1 - correlation) / 4000) + 1e-9
    unrelated = shown(labels, None, 4, [1])
    counts = np.array([np.bincount(unrelated[labels == each], minlength=4) for each in range(4)])
    assert np.abs(counts - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)
