import numpy as np
import pytest

from lrptrain.intervention import Change, KeptChanges, Region

EMPTY = np.zeros(0)
PLACES = (Region("outside"), Region("patches", (0,)))


def falling(fall):
    """What makes a change that falls so far."""
    return lambda: Change({}, {}, EMPTY, EMPTY, EMPTY, fall)


@pytest.mark.parametrize("most", [1, 3])
def test_of_each_group_the_furthest_are_kept_in_whatever_order_they_come(most):
    rng = np.random.default_rng(most)
    groups = {region: [set(rng.choice(40, size, False).tolist()) for size in (40, 9, 5, 5, 1)] for region in PLACES}
    kept = KeptChanges(groups, most)
    falls = {region: rng.permutation(40) / 40 for region in PLACES}
    for number in rng.permutation(80).tolist():
        region = PLACES[number % 2]
        fall = float(falls[region][number // 2])
        kept.offer(region, number // 2, fall, falling(fall))
    expected = {region: [sorted(group, key=lambda row: -falls[region][row])[:most] for group in groups[region]]
                for region in PLACES}  # fmt: skip
    assert {region: [kept.furthest(region, group) for group in groups[region]] for region in PLACES} == expected
    assert kept.changes.keys() == {(region, row) for region in PLACES for rows in expected[region] for row in rows}
    assert all(change.fall == falls[region][row] for (region, row), change in kept.changes.items())


def test_what_is_in_no_group_and_what_falls_less_is_not_even_made():
    kept = KeptChanges({PLACES[0]: [{0, 1}]}, most=1)
    kept.offer(PLACES[0], 0, 0.5, falling(0.5))
    for region, row, fall in ((PLACES[0], 1, 0.5), (PLACES[0], 2, 0.9), (PLACES[1], 0, 0.9)):
        kept.offer(region, row, fall, lambda: pytest.fail("made"))
    assert [*kept.changes] == [(PLACES[0], 0)]


def test_a_sample_that_one_group_gives_up_is_held_by_another():
    kept = KeptChanges({PLACES[0]: [{0, 1}, {0}, {1, 2}]}, most=1)
    for row, fall in ((0, 0.1), (1, 0.2), (2, 0.3)):
        kept.offer(PLACES[0], row, fall, falling(fall))
    assert {row for _, row in kept.changes} == {0, 1, 2}


def test_a_thousand_groups_are_not_searched_for_each_sample():
    class Group(set):
        def __contains__(self, row):
            raise AssertionError("searched")

    groups = [Group({row, row + 1000}) for row in range(1000)]
    kept = KeptChanges({PLACES[0]: groups}, most=1)
    for row in range(2000):
        kept.offer(PLACES[0], row, float(row), falling(float(row)))
    assert [row for _, row in kept.changes] == [*range(1000, 2000)]
