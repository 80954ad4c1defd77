import numpy as np
import pytest

from lrptrain.cues.association import association, associations


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
