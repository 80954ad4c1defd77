from dataclasses import replace

import numpy as np
import pytest
from examples import finding
from scipy import stats

from lrptrain.batch import Sample
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.findings.suspicion import departs, tells_classes_apart, worth_saying


def evaluation(labels, answers):
    explained = [
        ExplainedSample(Sample(i, label, {}), answer, np.ones(1), {}, None, 10, 0.3, {})
        for i, (label, answer) in enumerate(zip(labels, answers, strict=True))
    ]
    return Evaluation(explained)


def of_ten(right, samples=100):
    """Ten classes; the first `right` samples are read rightly, the others as the next class."""
    labels = [i % 10 for i in range(samples)]
    return evaluation(labels, [label if i < right else (label + 1) % 10 for i, label in enumerate(labels)])


def test_a_model_that_guesses_tells_no_classes_apart():
    # Labels and answers are spread evenly: by chance, one in ten would be right.
    assert not tells_classes_apart(of_ten(11), 0.95)
    fewest = next(right for right in range(101) if stats.binom.sf(right - 1, 100, 0.1) <= 0.05)
    assert not tells_classes_apart(of_ten(fewest - fewest % 10 - 10), 0.95)
    assert tells_classes_apart(of_ten(fewest - fewest % 10 + 10), 0.95)


@pytest.mark.parametrize(
    ("labels", "answers", "apart"),
    [
        ([0] * 90 + [1] * 10, [0] * 100, False),  # right in nine of ten, and knows nothing
        ([0] * 90 + [1] * 10, [0] * 85 + [1] * 15, True),
        ([0, 1] * 20, [1, 0] * 20, False),
        ([0] * 20, [0] * 20, True),  # a validation set of one class: nothing to tell apart
        ([-1] * 20, [0] * 20, False),
        ([-1] * 20, [0, 1] * 10, True),
    ],
)
def test_how_often_it_would_be_right_by_chance_is_what_counts(labels, answers, apart):
    assert tells_classes_apart(evaluation(labels, answers), 0.95) == apart


@pytest.mark.parametrize(
    ("share", "area", "far"),
    [(0.28, 0.29, False), (0.23, 0.29, True), (0.01, 0.04, True), (0.34, 0.29, False), (0.35, 0.29, True)],
)
def test_a_suspicion_departs_far_from_a_uniform_map_in_either_direction(share, area, far):
    relevance = replace(finding().relevance, effect=share, reference=area)
    assert departs(finding(relevance=relevance)) == far
    assert departs(finding(relevance=None))


def test_only_suspicions_are_dropped_and_not_what_was_demanded():
    relevance = replace(finding().relevance, effect=0.28, reference=0.29)
    weak = finding(relevance=relevance, bound=0.29)
    judged = [replace(weak, state=state) for state in ("confirmed", "suspected", "refuted")]
    assert worth_saying(judged, of_ten(100), 0.95) == [judged[0], judged[2]]
    strong = [replace(each, relevance=replace(relevance, effect=0.1)) for each in judged]
    assert worth_saying(strong, of_ten(100), 0.95) == strong
    assert worth_saying(strong, of_ten(11), 0.95) == [strong[0], strong[2]]
    demanded = [replace(each, bound=0.3) for each in judged]
    assert worth_saying(demanded, of_ten(11), 0.95) == demanded
    place = replace(strong[1], bound=None)
    assert worth_saying([place], of_ten(11), 0.95) == []
