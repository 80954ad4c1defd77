"""The plan of the benchmark is balanced wherever it stops, and tests no kind that was developed on."""

from collections import Counter

import numpy as np
import pytest

from experiments.benchmark.cases import (
    CORRELATIONS,
    DEVELOPMENT,
    EIGHTH,
    EIGHTH_TEXTS,
    IMAGE_KINDS,
    NEW_IMAGE_KINDS,
    NINTH,
    NINTH_TEXTS,
    NO_MARK,
    SEVENTH,
    TEXT_KINDS,
    TOUCHED,
    UNSEEN,
    UNSEEN_TEXTS,
    UNTOUCHED,
    planned,
    planned_eighth,
    planned_eighth_texts,
    planned_images,
    planned_ninth,
    planned_ninth_texts,
    planned_seventh,
    planned_texts,
    planned_unseen,
    planned_unseen_texts,
)
from experiments.benchmark.run import FIRST, TESTS


def test_every_kind_of_image_meets_both_data_sets_in_every_correlation():
    met = Counter((case.kind, case.task, case.correlation) for case in planned() if case.correlation is not None)
    images = [
        (kind, task, share) for kind in IMAGE_KINDS for task in ("digits", "photographs") for share in CORRELATIONS
    ]
    assert {each: met[each] for each in images} == dict.fromkeys(images, 1)
    texts = [(kind, "texts", share) for kind in TEXT_KINDS for share in CORRELATIONS]
    assert {each: met[each] for each in texts} == dict.fromkeys(texts, 2)
    assert len(met) == len(images) + len(texts)


def test_of_a_hundred_clean_runs_half_bear_marks_of_every_kind():
    clean = [case for case in planned() if case.correlation is None]
    assert Counter(case.kind == NO_MARK for case in clean) == {True: 50, False: 50}
    assert {case.kind for case in clean} == {NO_MARK, *IMAGE_KINDS, *TEXT_KINDS}


def test_no_kind_is_both_developed_on_and_tested():
    developed = {kind for kinds in DEVELOPMENT.values() for kind in kinds}
    assert not developed & {case.kind for case in planned()}


def test_half_a_round_holds_half_of_its_clean_runs_and_runs_have_randomness_of_their_own():
    for seed in range(10):
        half = planned()[28 * seed : 28 * seed + 14]
        assert {case.seed for case in half} == {seed}
        assert 3 <= sum(case.correlation is None for case in half) <= 7
    assert len({case.randomness for case in planned()}) == len({case.key for case in planned()}) == 280


def test_ten_rounds_of_images_have_the_headline_in_every_correlation_and_as_many_clean_runs_of_both_sorts():
    cases = planned_images(10, 200)
    planted = [case for case in cases if case.correlation is not None]
    met = Counter((case.kind, case.task, case.correlation) for case in planted if case.kind in UNTOUCHED)
    headline = [
        (kind, task, share) for kind in UNTOUCHED for task in ("digits", "photographs") for share in CORRELATIONS
    ]
    assert met == dict.fromkeys(headline, 1)
    others = Counter(case.kind for case in planted if case.kind not in UNTOUCHED)
    assert set(others) == set(TOUCHED)
    assert set(others.values()) <= {3, 4}
    assert {*TOUCHED, *UNTOUCHED} == {*IMAGE_KINDS, *NEW_IMAGE_KINDS}
    clean = [case for case in cases if case.correlation is None]
    assert Counter(case.kind == NO_MARK for case in clean) == {True: 30, False: 30}
    assert {case.kind for case in clean} == {NO_MARK, *UNTOUCHED}
    for number in range(10):
        half = cases[16 * number : 16 * number + 8]
        assert {case.seed for case in half} == {200 + number}
        assert 2 <= sum(case.correlation is None for case in half) <= 4
    assert len({case.randomness for case in cases}) == len({case.key for case in cases}) == 160


def test_ten_rounds_of_unseen_kinds_have_each_in_every_correlation_and_a_clean_run_after_every_planted_one():
    cases = planned_unseen(10, 300)
    met = Counter((case.kind, case.task, case.correlation) for case in cases[::2])
    every = [(kind, task, share) for kind in UNSEEN for task in ("digits", "photographs") for share in CORRELATIONS]
    assert met == dict.fromkeys(every, 1)
    clean = cases[1::2]
    assert {case.correlation for case in clean} == {None}
    assert [case.kind == NO_MARK for case in clean] == [True, False] * 40
    assert set(Counter(case.kind for case in clean[1::2]).values()) == {5}
    assert {case.kind for case in clean} == {NO_MARK, *UNSEEN}
    sorts = Counter((case.kind == NO_MARK, case.task) for case in clean)
    assert sorts == dict.fromkeys([(bare, task) for bare in (True, False) for task in ("digits", "photographs")], 20)
    assert {case.seed for case in cases[:16]} == {300}
    assert len({case.randomness for case in cases}) == len({case.key for case in cases}) == 160


@pytest.mark.parametrize(
    ("plan", "kinds", "first"),
    [(planned_seventh, SEVENTH, 400), (planned_eighth, EIGHTH, 900), (planned_ninth, NINTH, 1100)],
)
def test_ten_rounds_of_ten_kinds_have_each_in_every_correlation_and_a_clean_run_after_every_planted_one(
    plan, kinds, first
):
    cases = plan(10, first)
    met = Counter((case.kind, case.task, case.correlation) for case in cases[::2])
    every = [(kind, task, share) for kind in kinds for task in ("digits", "photographs") for share in CORRELATIONS]
    assert met == dict.fromkeys(every, 1)
    clean = cases[1::2]
    assert {case.correlation for case in clean} == {None}
    assert [case.kind == NO_MARK for case in clean] == [True, False] * 50
    assert Counter(case.kind for case in clean[1::2]) == dict.fromkeys(kinds, 5)
    sorts = Counter((case.kind == NO_MARK, case.task) for case in clean)
    assert sorts == dict.fromkeys([(bare, task) for bare in (True, False) for task in ("digits", "photographs")], 25)
    for number in range(10):
        in_round = cases[20 * number : 20 * number + 20]
        assert {case.seed for case in in_round} == {first + number}
        assert {case.kind for case in in_round[::2]} == set(kinds)
    assert len({case.randomness for case in cases}) == len({case.key for case in cases}) == 200


@pytest.mark.parametrize(
    ("plan", "kinds", "first"),
    [
        (planned_unseen_texts, UNSEEN_TEXTS, 500),
        (planned_eighth_texts, EIGHTH_TEXTS, 1000),
        (planned_ninth_texts, NINTH_TEXTS, 1200),
    ],
)
def test_ten_rounds_of_unseen_texts_have_each_kind_twice_in_every_correlation_and_clean_runs_in_between(
    plan, kinds, first
):
    cases = plan(10, first)
    assert {case.task for case in cases} == {"texts"}
    met = Counter((case.kind, case.correlation) for case in cases[::2])
    assert met == dict.fromkeys([(kind, share) for kind in kinds for share in CORRELATIONS], 2)
    clean = cases[1::2]
    assert {case.correlation for case in clean} == {None}
    assert Counter(case.kind == NO_MARK for case in clean) == {True: 30, False: 30}
    assert Counter(case.kind for case in clean if case.kind != NO_MARK) == dict.fromkeys(kinds, 5)
    for number in range(10):
        in_round = cases[12 * number : 12 * number + 12]
        assert {case.seed for case in in_round} == {first + number}
        assert {case.kind for case in in_round[::2]} == set(kinds)
        assert [case.kind == NO_MARK for case in in_round[1::2]] == [True, False] * 3
    assert len({case.randomness for case in cases}) == len({case.key for case in cases}) == 120


def test_no_unseen_kind_is_one_of_the_others():
    developed = {kind for kinds in DEVELOPMENT.values() for kind in kinds}
    others = {*IMAGE_KINDS, *NEW_IMAGE_KINDS, *TEXT_KINDS, *developed}
    assert not set(UNSEEN) & others
    assert len(set(SEVENTH)) == 10
    assert not set(SEVENTH) & {*others, *UNSEEN}
    assert len(set(UNSEEN_TEXTS)) == 6
    assert not set(UNSEEN_TEXTS) & {*others, *UNSEEN, *SEVENTH}
    assert len(set(EIGHTH)) == 10
    assert len(set(EIGHTH_TEXTS)) == 6
    assert not {*EIGHTH, *EIGHTH_TEXTS} & {*others, *UNSEEN, *SEVENTH, *UNSEEN_TEXTS}
    assert not set(EIGHTH) & set(EIGHTH_TEXTS)
    assert len(set(NINTH)) == 10
    assert len(set(NINTH_TEXTS)) == 6
    assert not {*NINTH, *NINTH_TEXTS} & {*others, *UNSEEN, *SEVENTH, *UNSEEN_TEXTS, *EIGHTH, *EIGHTH_TEXTS}
    assert not set(NINTH) & set(NINTH_TEXTS)


def test_the_texts_of_a_round_are_those_of_the_whole_one():
    cases = planned_texts(2, 100)
    assert len(cases) == 20
    assert {case.task for case in cases} == {"texts"}
    assert {case.seed for case in cases} == {100, 101}
    assert set(cases) < set(planned(2, 100))


def test_every_test_has_a_plan_and_rounds_of_its_own():
    assert list(TESTS) == list(FIRST)
    rounds = [case.seed for name, (plan, _) in TESTS.items() for case in plan(10, FIRST[name])[:1]]
    assert rounds == list(FIRST.values())
    assert (np.diff(rounds) >= 10).all()
