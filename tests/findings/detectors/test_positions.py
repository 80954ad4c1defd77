import numpy as np
import pytest

from lrptrain.findings.detectors.positions import describe, fixed_positions
from lrptrain.findings.scopes import OVERALL, ScopeMembers, split_into_scopes

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
    assert describe([35], GRID) == "bottom right (1 of 36 patches)"
    assert describe([0, 5], GRID) == "top left, top right (2 of 36 patches)"
    assert describe([14], GRID) == "middle centre (1 of 36 patches)"
