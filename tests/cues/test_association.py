import numpy as np
import pytest

from lrptrain.cues.association import alternatives, association, associations, covering, distinct, joined


def of(present, answers):
    return association(np.array(present, bool), np.array(answers))


def test_it_is_the_standardised_residual_of_the_table():
    # 6 of 8 with answer 1 have it and 2 of 8 with answer 0: (6 - 4) / sqrt(8 * 8 / 16 * 1/2 * 1/2 * 4) = 2
    assert of([1] * 6 + [0] * 2 + [1] * 2 + [0] * 6, [1] * 8 + [0] * 8) == pytest.approx(2)
    # 3 of 4 samples with answer 2 of 12 have it, and 1 of the other 8: (3 - 4/3) / sqrt(4/3 * 2/3 * 2/3)
    present = [1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert of(present, [0] * 4 + [1] * 4 + [2] * 4) == pytest.approx((3 - 4 / 3) / np.sqrt(4 / 3 * 2 / 3 * 2 / 3))


def test_what_all_or_none_have_goes_with_no_answer():
    answers = [0, 0, 1, 1]
    assert of([1] * 4, answers) == of([0] * 4, answers) == 0
    assert of([1, 0, 1, 0], answers) == 0
    assert of([1] * 49, [1] + [0] * 48) == 0  # 49 * (1 / 49) is less than 1
    assert of([1, 0, 1, 0], [1] * 4) == 0


def test_the_largest_counts_and_an_answer_that_has_it_seldom_does_not():
    present, answers = np.array([[1, 1, 1, 0, 0, 0, 0, 0]], bool), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    whole = associations(present, answers)
    assert associations(present, answers, 0) == pytest.approx(whole)
    assert associations(present, answers, 1) == pytest.approx(-whole)
    assert whole > 0


def test_several_are_those_of_each():
    rng = np.random.default_rng(0)
    present, answers = rng.random((5, 40)) < 0.5, rng.integers(0, 3, 40)
    assert associations(present, answers).tolist() == pytest.approx([association(each, answers) for each in present])


def having(count, *which):
    """Return which of so many samples have each of some things, by their numbers."""
    return np.array([np.isin(np.arange(count), each) for each in which])


def test_what_covers_an_answer_is_ranked_among_the_samples_that_have_nothing_before_it():
    present = having(12, range(4), (0, 1, 2, 9), (4, 5, 6), (4, 5), range(12))
    assert [each for _, each in covering(present, np.arange(12) < 8)] == [0, 2]
    assert covering(present, np.ones(12, bool)) == []


OF_ONE = np.arange(24) < 16


@pytest.mark.parametrize(
    ("others", "found"),
    [
        (((8, 9, 10, 11),), [0, 1]),
        (((8, 9, 10),), [0]),  # in less than half as many samples as the first
        (((7, 8, 9, 10, 11),), [0]),  # a sample has both
        ((range(8, 14), range(12, 16)), [0, 1]),
        ((range(8, 12), range(12, 16)), [0, 1, 2]),
        ((range(16, 22),), [0]),  # goes with the other answer
        (((8, 9, 16, 17, 18),), [0]),
    ],
)
def test_no_sample_has_two_alternatives_and_each_is_as_frequent_as_half_of_the_first(others, found):
    present = having(24, range(8), *others)
    score, several = alternatives(present, [""] * len(present), OF_ONE, [0])
    assert several == found
    assert score == associations(present[found].any(0)[None], OF_ONE.astype(int), 1)[0]


def test_alternatives_are_of_one_kind_and_the_best_first_one_begins_them():
    present = having(24, range(4), range(4, 8), range(8, 12), range(6, 16))
    kinds = ["a", "b", "a", "b"]
    assert alternatives(present, kinds, OF_ONE, [0])[1] == [0, 2]
    assert alternatives(present, kinds, OF_ONE, [0, 1])[1] == [0, 2]
    assert alternatives(present, kinds, OF_ONE, [0, 3])[1] == [3]


def test_of_lists_that_go_as_far_the_one_of_more_is_taken():
    present = having(24, range(8), range(4), range(4, 8), range(8, 16))
    assert alternatives(present, [""] * 4, OF_ONE, [0])[1] == [0, 3]
    kinds = ["b", "a", "a", "a"]
    assert alternatives(present, kinds, OF_ONE, [0])[1] == [0]
    kinds = ["b", "a", "a", "b"]
    present[3] = False
    assert alternatives(present, kinds, OF_ONE, [0, 1])[1] == [1, 2]


def test_lists_of_all_answers_are_one_if_nearly_every_sample_has_exactly_one():
    of_answer = [OF_ONE, ~OF_ONE]
    lists = [(3.0, [0, 1]), (4.0, [2])]
    kinds = [""] * 3

    def found(*which):
        return joined(lists, having(24, *which), kinds, of_answer)

    assert found(range(8), range(8, 16), range(16, 24)) == [[0, 2, 1]]
    assert found(range(7), range(9, 16), range(16, 22)) == [[0, 2, 1]]
    assert found(range(7), range(9, 15), range(16, 24)) == [[0, 1]]  # three have none
    assert found(range(8), range(8, 16), range(19, 24)) == [[0, 1]]
    assert found(range(8), range(8, 16), range(13, 24)) == [[0, 1]]  # three have two
    assert found(range(3), range(3, 16), range(16, 24)) == [[0, 1]]  # the first is much rarer than the other's
    assert found(range(4), range(4, 16), range(16, 24)) == [[0, 2, 1]]
    kinds[2] = "b"
    assert found(range(8), range(8, 16), range(16, 24)) == [[0, 1]]


def test_lists_of_several_come_in_the_order_in_which_they_go_with_an_answer():
    present = having(24, *((number,) for number in range(5)))
    lists = [(1.0, [0, 1]), (3.0, [2]), (2.0, [3, 4])]
    assert joined(lists, present, [""] * 5, [OF_ONE, ~OF_ONE]) == [[3, 4], [0, 1]]
    assert joined(lists[:1], present, [""] * 5, [OF_ONE, ~OF_ONE]) == [[0, 1]]
    assert joined([], present, [""] * 5, [OF_ONE, ~OF_ONE]) == []


def test_of_several_views_of_a_thing_that_mostly_the_same_samples_have_the_first_counts():
    one, half, most, other = (np.isin(np.arange(8), held) for held in ([0, 1, 2, 3], [2, 3], [1, 2, 3], [3, 5, 6]))
    assert distinct([one, most, other], 4) == [0, 2]
    assert distinct([one, half, other], 4) == [0, 2], "half of what either holds is enough"
    assert distinct([one, other, most], 1) == [0]
    assert distinct([], 4) == []
