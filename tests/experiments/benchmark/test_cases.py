"""The plan of the benchmark is balanced wherever it stops, and tests no kind that was developed on."""

from collections import Counter

import pytest

from experiments.benchmark.cases import (
    CORRELATIONS,
    DEVELOPMENT,
    FIRST,
    IMAGE_KINDS,
    IMAGE_TASKS,
    NO_MARK,
    TEXT_KINDS,
    planned,
)


@pytest.mark.parametrize(("kinds", "tasks"), [(IMAGE_KINDS, IMAGE_TASKS), (TEXT_KINDS, ("texts",))])
def test_ten_rounds_have_each_kind_in_every_correlation_and_a_clean_run_after_every_planted_one(kinds, tasks):
    cases = planned(kinds, 10)
    met = Counter((case.kind, case.task, case.correlation) for case in cases[::2])
    every = [(kind, task, share) for kind in kinds for task in tasks for share in CORRELATIONS]
    assert met == dict.fromkeys(every, 2 // len(tasks))
    clean = cases[1::2]
    assert {case.correlation for case in clean} == {None}
    assert [case.kind == NO_MARK for case in clean] == [True, False] * (len(clean) // 2)
    assert {case.kind for case in clean} == {NO_MARK, *kinds}
    sorts = Counter((case.kind == NO_MARK, case.task) for case in clean)
    assert len(sorts) == 2 * len(tasks)
    assert max(sorts.values()) - min(sorts.values()) <= 2
    size = 2 * len(kinds)
    for number in range(10):
        in_round = cases[size * number : size * (number + 1)]
        assert {case.seed for case in in_round} == {FIRST + number}
        assert {case.kind for case in in_round[::2]} == set(kinds)
    assert len({case.randomness for case in cases}) == len({case.key for case in cases}) == 10 * size


def test_no_kind_is_both_developed_on_and_tested():
    developed = [kind for kinds in DEVELOPMENT.values() for kind in kinds]
    every = [*developed, *IMAGE_KINDS, *TEXT_KINDS]
    assert len(set(every)) == len(every)
