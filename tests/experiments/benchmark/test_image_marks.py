"""Marks have a form per class, and say nothing where they are meant to say nothing."""

from itertools import combinations

import numpy as np
import pytest

from experiments.benchmark.cases import DEVELOPMENT, IMAGE_KINDS, NO_MARK
from experiments.benchmark.image_marks import (
    AROUND_MARKS,
    GROUND_MARKS,
    PICTURE_MARKS,
    STAMPS,
    aperture,
    backdrop,
    bayer,
    box,
    caliper,
    cursor,
    dust,
    grass,
    hair,
    halo,
    holder,
    interlace,
    label,
    legend,
    panning,
    perforation,
    rain,
    readout,
    redaction,
    surface,
    tiled,
    truncated,
    tube,
    viewfinder,
)
from experiments.benchmark.images import KINDS, _scene, shown
from experiments.benchmark.scenes import SIDE

GROUND = np.random.default_rng(0).random((SIDE, SIDE, 3), np.float32)
MARKS = {**GROUND_MARKS, **PICTURE_MARKS}


def differ(forms):
    """Whether each form is another picture than those before it."""
    return all(np.abs(one - other).mean() > 0.005 for one, other in combinations(forms, 2))


@pytest.mark.parametrize("kind", MARKS)
def test_the_forms_of_a_mark_differ_and_leave_what_they_are_drawn_on(kind):
    before = GROUND.copy()
    forms = [MARKS[kind](GROUND, form, np.random.default_rng(1)) for form in range(4)]
    assert np.array_equal(GROUND, before)
    assert differ(forms)


@pytest.mark.parametrize("kind", AROUND_MARKS)
def test_the_forms_of_a_mark_around_the_thing_differ_and_leave_what_they_are_drawn_on(kind):
    before, cover = GROUND.copy(), np.zeros((SIDE, SIDE), np.float32)
    cover[6:18, 7:17] = 1
    cover_before = cover.copy()
    forms = [AROUND_MARKS[kind](GROUND, cover, form, np.random.default_rng(1)) for form in range(4)]
    assert np.array_equal(GROUND, before)
    assert np.array_equal(cover, cover_before)
    assert differ(forms)


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
    assert {*IMAGE_KINDS, *DEVELOPMENT["images"], NO_MARK} == KINDS


def test_dust_lies_always_at_the_places_of_its_camera():
    white = np.ones((SIDE, SIDE, 3))
    darkest = []
    for form in range(4):
        one, other = (dust(white, form, np.random.default_rng(seed)) for seed in (0, 1))
        assert np.array_equal(one, other)
        darkest.append({tuple(place) for place in np.argwhere(one[..., 0] < 0.21)})
    assert [len(places) for places in darkest] == [3] * 4
    assert len(set.union(*darkest)) == 12


def test_black_boxes_lie_anywhere():
    for form in range(4):
        found = [redaction(form, np.random.default_rng(seed)) for seed in range(300)]
        tops = {top for boxes in found for _, top, _ in boxes}
        assert tops == set(range(SIDE - found[0][0][0].shape[0] + 1))
        assert not any(stamp.any() for boxes in found for stamp, _, _ in boxes)


def test_an_aperture_shows_the_middle_and_is_symmetric():
    for form in range(4):
        seen = aperture(np.ones((SIDE, SIDE, 3)), form, np.random.default_rng(0))
        assert (seen[4:-4, 4:-4] == 1).all()
        assert not seen[:1, :2].any()
        assert np.array_equal(seen, seen[::-1])
        assert np.array_equal(seen, seen[:, ::-1])


def test_hairs_are_thin_lie_anywhere_and_have_the_shade_of_their_class():
    ground, covered = np.full((SIDE, SIDE, 3), 0.5), np.zeros((SIDE, SIDE))
    for form, shade in enumerate(((0.05, 0.04, 0.04), (0.55, 0.15, 0.05), (0.9, 0.7, 0.3), (0.95, 0.95, 0.95))):
        for seed in range(100):
            change = hair(ground, form, np.random.default_rng([form, seed])) - ground
            towards = np.array(shade) - 0.5
            share = change[..., 2] / towards[2]
            assert np.allclose(change, share[..., None] * towards)
            assert 5 < (share > 0.3).sum() < 60
            covered += share > 0.3
    assert covered.all()


def test_tiles_repeat_as_often_as_their_class_says_and_keep_the_mean():
    for form, (down, across) in enumerate(((1, 1), (1, 3), (3, 1), (3, 3))):
        seen = tiled(GROUND, form, np.random.default_rng(0))
        assert np.array_equal(seen, np.roll(seen, (SIDE // down, SIDE // across), (0, 1)))
        assert len(np.unique(seen.reshape(-1, 3), axis=0)) == SIDE * SIDE // (down * across)
        assert np.allclose(seen.mean((0, 1)), GROUND.mean((0, 1)), atol=1e-5)


def test_a_halo_is_bright_or_dark_and_narrow_or_wide_and_never_on_the_thing():
    ground, cover = np.full((SIDE, SIDE, 3), 0.5), np.zeros((SIDE, SIDE), np.float32)
    cover[8:16, 8:16] = 1
    for form, (sign, wide) in enumerate(((1, False), (1, True), (-1, False), (-1, True))):
        rng = np.random.default_rng(0)
        change = halo(ground, cover, form, rng)[..., 0] - 0.5
        assert (sign * change >= 0).all()
        assert sign * change[7, 12] > 0.1
        assert (sign * change[4, 12] > 0.02) == wide
        shown = _scene("halo", form, np.full((8, 8, 3), 0.4), np.ones((8, 8)), ground, (8, 8), rng)[0]
        assert np.allclose(shown[8:16, 8:16], 0.4)


def test_calipers_lie_at_the_ends_of_the_thing_and_never_leave_the_image():
    ground = np.zeros((SIDE, SIDE, 3))
    for form, direction in enumerate(((0, 1), (1, 0), (1, 1), (1, -1))):
        for top in range(SIDE - 7):
            cover = np.zeros((SIDE, SIDE), np.float32)
            cover[top : top + 8, 8:16] = 1
            seen = caliper(ground, cover, form, np.random.default_rng(0))
            crosses = np.argwhere(seen[..., 0] > 0)
            assert (crosses.min(0) >= 0).all()
            if 5 <= top < SIDE - 12:
                assert len(crosses) == 18
                middle = np.array((top + 3.5, 11.5))
                assert np.allclose(crosses.mean(0), middle, atol=0.51)
                ends = crosses[np.abs(crosses - middle) @ np.abs(direction) > 3]
                assert len(ends) == 18
                assert np.allclose((seen * (1 - cover[..., None])).sum(), seen.sum())


def test_interlacing_moves_every_second_row():
    for form in range(4):
        seen = interlace(GROUND, form, np.random.default_rng(0))
        assert np.array_equal(seen[::2], GROUND[::2])
        assert np.array_equal(seen[1::2, form:], GROUND[1::2, : SIDE - form])
        assert (seen[1::2, :form] == GROUND[1::2, :1]).all()


def test_a_viewfinder_is_pale_symmetric_and_always_the_same():
    for form, count in enumerate((28, 36, 92, 36)):
        change = viewfinder(GROUND, form, np.random.default_rng(0)) - GROUND
        line = change.min(2) > 0
        assert line.sum() == count
        assert np.allclose(change, 0.6 * line[..., None] * (1 - GROUND), atol=1e-6)
        assert np.array_equal(line, line[::-1])
        assert np.array_equal(line, line.T)
        assert np.array_equal(viewfinder(GROUND, form, np.random.default_rng(1)) - GROUND, change)


def test_a_broken_file_lacks_three_to_six_rows_at_the_bottom():
    for form in range(4):
        heights = set()
        for seed in range(50):
            [(strip, top, left)] = truncated(form, np.random.default_rng(seed))
            assert strip.shape == (SIDE - top, SIDE, 3)
            assert left == 0
            assert (len(np.unique(strip.reshape(-1, 3), axis=0)) == 1) == (form < 3)
            heights.add(len(strip))
        assert heights == {3, 4, 5, 6}


def test_a_tube_comes_in_at_any_place_of_the_side_of_its_class():
    black = np.zeros((SIDE, SIDE, 3))
    for form in range(4):
        met = np.zeros(SIDE, bool)
        for seed in range(100):
            seen = tube(black, form, np.random.default_rng(seed))
            sides = (seen[:, 0], seen[:, -1], seen[0], seen[-1])
            assert sides[form].max() > 0.5
            assert not sides[form ^ 1].any()
            assert 15 < (seen[..., 0] > 0.3).sum() < 60
            met |= sides[form].max(1) > 0.3
        assert met[5:-5].all()


def test_grass_grows_from_below_in_few_or_many_and_short_or_long_blades():
    black = np.zeros((SIDE, SIDE, 3))
    greens = []
    for form in range(4):
        drawn = [grass(black, form, np.random.default_rng(seed)) for seed in range(100)]
        greens.append([(each[..., 1] > 0.1).sum() for each in drawn])
        highest = min(np.argwhere(each[..., 1] > 0.1)[:, 0].min() for each in drawn)
        assert (highest < SIDE - 8) == bool(form % 2)
        assert highest > SIDE - 13
        assert all((each[..., 1] >= each[..., 2]).all() for each in drawn)
        assert np.mean(drawn, 0)[-1, :, 1].min() > 0.05  # anywhere
    few_short, few_long, many_short, many_long = np.mean(greens, 1)
    assert 1.5 * few_short < few_long < many_long
    assert 1.5 * few_short < many_short < many_long


def test_a_moving_camera_smears_along_the_direction_of_its_class_alone():
    point = np.zeros((SIDE, SIDE, 3))
    point[12, 12] = 1
    for form, (down, across) in enumerate(((0, 1), (1, 0), (1, 1), (1, -1))):
        seen = panning(point, form, np.random.default_rng(0))
        assert np.isclose(seen.sum(), 3, atol=0.3)
        places = np.argwhere(seen[..., 0] > 0.02) - 12
        assert len(places) >= 5
        assert (np.abs(places @ np.array((across, -down))) <= 1).all()
        assert np.abs(places).max() >= 2


def test_a_surface_has_any_colour_in_every_class_and_hides_most_of_the_surroundings():
    black, white = np.zeros((SIDE, SIDE, 3)), np.ones((SIDE, SIDE, 3))
    for form in range(4):
        colours = []
        for seed in range(100):
            seen = surface(black, form, np.random.default_rng(seed))
            assert np.allclose(surface(white, form, np.random.default_rng(seed)) - seen, 0.4, atol=1e-6)
            colours.append(seen.mean((0, 1)))
        assert (np.ptp(colours, 0) > 0.15).all()
        assert np.allclose(np.mean(colours, 0), 0.285, atol=0.02)  # 0.6 times 0.475


def test_a_box_goes_around_the_thing_in_the_line_of_its_class_and_never_over_it():
    black, cover = np.zeros((SIDE, SIDE, 3)), np.zeros((SIDE, SIDE), np.float32)
    cover[6:18, 7:17] = 1
    counts = []
    for form in range(4):
        line = box(black, cover, form, np.random.default_rng(0))[..., 1] > 0
        places = np.argwhere(line)
        rim = 1 if form == 3 else 0
        assert np.array_equal(places.min(0), (5 - rim, 6 - rim))
        assert np.array_equal(places.max(0), (18 + rim, 17 + rim))
        counts.append(line[6:18, [6, 17]].sum() + line[[5, 18], 7:17].sum())
        rng = np.random.default_rng(0)
        seen = _scene("box", form, np.full((12, 12, 3), 0.4), np.ones((12, 12)), black, (6, 7), rng)[0]
        assert np.allclose(seen[6:18, 7:17], 0.4)
    assert counts[0] == counts[3] == 44
    assert counts[2] == 24
    assert 20 <= counts[1] <= 24


def test_every_pixel_keeps_the_channel_that_it_measures_and_classes_differ_in_which():
    white = np.ones((SIDE, SIDE, 3))
    arrangements = set()
    for form in range(4):
        seen = bayer(white, form, np.random.default_rng(0))
        assert np.array_equal(seen[:2, :2], seen[-2:, -2:])
        assert np.allclose(np.sort(seen, 2), (0.7, 0.7, 1.0))
        measured = seen[:2, :2].argmax(2).ravel()
        assert sorted(measured) == [0, 1, 1, 2]
        arrangements.add(tuple(measured))
    assert len(arrangements) == 4


def test_a_legend_is_always_at_the_right_side_and_has_the_colours_of_its_class():
    ends = (((1, 1, 1), (0, 0, 0)), ((1, 1, 0.9), (0, 0, 0)), ((0.9, 0.1, 0.1), (0.1, 0.1, 0.9)),
            ((0.8, 0.1, 0.1), (0.1, 0.2, 0.8)))  # fmt: skip
    for form in range(4):
        [(strip, top, left)] = legend(form, np.random.default_rng(0))
        assert strip.shape == (18, 3, 3)
        assert (top, left) == (3, SIDE - 4)
        assert np.array_equal(strip[:, 0], strip[:, 2])
        assert np.allclose(strip[[0, -1], 0], ends[form], atol=1e-6)
    grey = legend(0, np.random.default_rng(0))[0][0]
    assert not np.ptp(grey, 2).any()
    assert (np.diff(grey[:, 0, 0]) < 0).all()


def test_a_film_has_the_same_holes_at_both_sides_of_any_phase():
    for form, (height, period) in enumerate(((2, 4), (2, 8), (4, 6), (4, 12))):
        phases = set()
        for seed in range(100):
            (left, *first), (right, *second) = perforation(form, np.random.default_rng(seed))
            assert np.array_equal(left, right)
            assert first + second == [0, 0, 0, SIDE - 3]
            assert (left[:, [0, 2]] < 0.1).all()
            holes = left[:, 1, 0] > 0.5
            assert holes.sum() == SIDE * height // period
            assert np.array_equal(holes, np.roll(holes, period))
            phases.add(tuple(holes))
        assert len(phases) == period


def test_a_cursor_is_black_and_white_and_lies_anywhere():
    grey = np.full((SIDE, SIDE, 3), 0.5)
    for form, width in enumerate((6, 6, 5, 6)):
        tops, lefts = set(), set()
        for seed in range(300):
            seen = cursor(grey, form, np.random.default_rng(seed))
            assert {float(value) for value in np.unique(seen)} == {0, 0.5, 1}
            places = np.argwhere(seen[..., 0] != 0.5)
            assert np.array_equal(np.ptp(places, 0), (7, width - 1))
            tops.add(places[:, 0].min())
            lefts.add(places[:, 1].min())
        assert tops == set(range(SIDE - 7))
        assert lefts == set(range(SIDE - width + 1))


def test_rain_falls_anywhere_along_the_slant_of_its_class_and_is_equally_strong():
    black = np.zeros((SIDE, SIDE, 3))
    amounts = []
    for form, slant in enumerate((-0.9, -0.3, 0.3, 0.9)):
        drawn = np.stack([rain(black, form, np.random.default_rng(seed))[..., 0] for seed in range(200)])
        amounts.append(drawn.mean())
        assert drawn.mean(0).min() > 0.03
        products = {}
        for across in range(-4, 5):
            moved = np.roll(drawn, (-3, -across), (1, 2))
            products[across] = (drawn * moved)[:, 4:-4, 4:-4].mean()
        assert abs(max(products, key=products.__getitem__) - 3 * np.tan(slant)) < 1
    assert np.ptp(amounts) < 0.1 * np.mean(amounts)


def test_a_backdrop_has_any_colour_and_is_brightest_in_the_quarter_of_its_class():
    black, white = np.zeros((SIDE, SIDE, 3)), np.ones((SIDE, SIDE, 3))
    for form in range(4):
        colours = []
        for seed in range(100):
            seen = backdrop(black, form, np.random.default_rng(seed))
            assert np.allclose(backdrop(white, form, np.random.default_rng(seed)) - seen, 0.25, atol=1e-6)
            colours.append(seen.mean((0, 1)))
            row, column = np.unravel_index(seen[..., 0].argmax(), (SIDE, SIDE))
            assert (row >= SIDE // 2, column >= SIDE // 2) == (form // 2 == 1, form % 2 == 1)
        assert (np.ptp(colours, 0) > 0.2).all()
        assert np.allclose(np.mean(colours, 0), 0.356, atol=0.03)  # 0.75 times 0.475


def test_a_holder_goes_from_the_thing_to_the_nearest_side_with_room_for_it():
    black = np.zeros((SIDE, SIDE, 3))
    for form in range(4):
        for top in range(11):
            cover = np.zeros((SIDE, SIDE), np.float32)
            cover[top : top + 14, 5:19] = 1
            line = holder(black, cover, form, np.random.default_rng(0))[..., 0] > 0
            rows = np.unique(np.argwhere(line)[:, 0])
            assert np.array_equal(rows, np.arange(top + 14, SIDE) if top < 6 else np.arange(top))
            assert np.array_equal(line, line[:, ::-1])
            outermost = line[-1 if top < 6 else 0]
            nearest = line[top + 14 if top < 6 else top - 1]
            assert outermost.sum() == (2, 4, outermost.sum(), 12)[form]
            assert nearest.sum() == (2, 4, nearest.sum(), 2)[form]
            if form == 2:
                assert np.ptp(np.flatnonzero(outermost)) > np.ptp(np.flatnonzero(nearest)) + 6


def test_a_label_is_as_wide_as_the_name_of_its_class_and_never_on_the_thing():
    black = np.zeros((SIDE, SIDE, 3))
    for form, width in enumerate((4, 7, 10, 13)):
        colours = set()
        for top in range(11):
            for left in range(11):
                cover = np.zeros((SIDE, SIDE), np.float32)
                cover[top : top + 14, left : left + 14] = 1
                seen = label(black, cover, form, np.random.default_rng([top, left]))
                places = np.argwhere(seen.any(2))
                assert len(places) == 4 * width
                assert places[0, 0] == (top - 4 if top >= 4 else top + 14)
                assert places[0, 1] == left
                written = seen[places[0, 0] + 1, left + 1 : left + width - 1]
                assert np.allclose(written[::2], 0.1)
                colours.add(tuple(seen[tuple(places[0])]))
        assert len(colours) == 121


def test_readout_is_equally_strong_in_all_classes_and_goes_along_rows_columns_both_or_quarters():
    grey = np.full((SIDE, SIDE, 3), 0.5)
    for form in range(4):
        for seed in range(20):
            noise = readout(grey, form, np.random.default_rng(seed)) - grey
            assert np.isclose(noise.std(), 0.06, atol=1e-4)
            assert np.isclose(noise.mean(), 0, atol=1e-4)
            assert not np.ptp(noise, 2).any()
            flat = noise[..., 0]
            assert (np.ptp(flat, 1).max() < 1e-6) == (form == 0)
            assert (np.ptp(flat, 0).max() < 1e-6) == (form == 1)
            mixed = flat[1:, 1:] - flat[1:, :-1] - flat[:-1, 1:] + flat[:-1, :-1]
            assert (np.abs(mixed).max() < 1e-6) == (form < 3)
            assert (len(np.unique(flat.round(5))) == 4) == (form == 3)


def test_marks_go_with_the_class_as_often_as_is_asked_or_not_at_all():
    labels = np.repeat(np.arange(4), 1000)
    for correlation in (0.65, 0.9, 1.0):
        share = (shown(labels, correlation, 4, [1]) == labels).mean()
        assert abs(share - correlation) < 5 * np.sqrt(correlation * (1 - correlation) / 4000) + 1e-9
    unrelated = shown(labels, None, 4, [1])
    counts = np.array([np.bincount(unrelated[labels == each], minlength=4) for each in range(4)])
    assert np.abs(counts - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)
