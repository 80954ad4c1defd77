"""Marks have a form per class, and say nothing where they are meant to say nothing."""

import numpy as np
import pytest

from experiments.benchmark.image_marks import GROUND_MARKS, LETTERS, PICTURE_MARKS, STAMPS, WORDS, fringe, pair
from experiments.benchmark.images import _scene, corner, shown
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
