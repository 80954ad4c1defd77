"""What an evaluation without a fault shows."""

from dataclasses import replace

import numpy as np
import pytest

from lrptrain.batch import Sample
from lrptrain.cues.measure import Effect
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.places import places
from lrptrain.cues.row_mark import RowMark
from lrptrain.cues.search import Judged
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.power import lines_of, shown_by
from tests.plain_texts import bert

BORDER, TOP, *_ = places("open")


def judged(cue, verdict):
    return Judged(cue, verdict, Effect(0.0, -0.1, 0.1, 16), np.zeros(16), np.arange(16))


def scored(count=16, right=True):
    answers = [i % 2 for i in range(count)]
    return [
        ExplainedSample(Sample(i, each if right else 1 - each, {}), each, np.eye(2)[each], {}, None, 2, 0.3, {})
        for i, each in enumerate(answers)
    ]


def test_without_a_label_nobody_knows_whether_a_model_guesses():
    unlabelled = [replace(each, sample=replace(each.sample, label=-1)) for each in scored()]
    power = shown_by(unlabelled, [judged(TOP, "does not rely")], [], 0.95)
    assert power.tells
    assert power.doubt.startswith("No sample has a label")
    assert not shown_by(scored(), [judged(TOP, "does not rely")], [], 0.95).doubt


def test_it_says_what_was_tested_and_what_was_not():
    power = shown_by(scored(), [judged(BORDER, "not sure"), judged(TOP, "does not rely")], ["the rest: why"], 0.95)
    assert power.tells
    assert power.text == (
        "Not sure whether it relies on: the border. It does not rely on these alone: the top edge. "
        "Not tested: the rest: why."
    )
    assert power.short == "Not sure of 1 cue. It does not rely on 1 cue alone. Not tested: the rest: why."
    assert not power.can_fault
    assert shown_by(scored(), [judged(BORDER.declared("fault"), "not sure")], [], 0.95).can_fault


@pytest.mark.parametrize(
    ("samples", "answer", "text"),
    [
        (scored(7), "", "That says nothing: 7 samples are too few; 8 can be enough."),
        (scored(1), "", "That says nothing: 1 sample is too few; 8 can be enough."),
        (scored(right=False), "", "That says nothing yet: its answers are no better than chance."),
        (scored(), "It answers 'a'.", "It answers 'a'."),
    ],
)
def test_where_nothing_can_be_known_it_says_why(samples, answer, text):
    power = shown_by(samples, [judged(BORDER, "does not rely")], [], 0.95, answer)
    assert (power.tells, power.text) == (False, text)


def test_nothing_tested_tells_nothing():
    assert not shown_by(scored(), [], ["anything: cues=None"], 0.95).tells


def test_of_two_cues_of_one_name_the_gravest_is_said():
    other = replace(TOP, name=BORDER.name)
    assert lines_of([judged(BORDER, "relies"), judged(other, "not sure")], []) == []
    both = lines_of([judged(BORDER, "does not rely"), judged(other, "not sure")], [])
    assert both == ["Not sure whether it relies on: the border."]


def test_lists_of_words_are_not_said_beside_their_words():
    language = bert().language
    one, several = (Phrase(f"the words {n}", "open", language, phrases=(((1,),), ((2,),))[:n]) for n in (1, 2))
    assert lines_of([judged(one, "not sure"), judged(several, "not sure")], []) == [
        "Not sure whether it relies on: the words 1."
    ]


def test_what_samples_propose_is_no_news_unless_it_may_be_a_fault():
    mark = RowMark("rows like row 3 of sample 7", "open", "rows", (0.0, 1.0), 0.5)
    for verdict in ("not sure", "does not rely"):
        assert lines_of([judged(mark, verdict)], []) == []
    doubt = judged(mark.declared("fault"), "not sure")
    assert lines_of([doubt], []) == [f"Not sure whether it relies on: {mark.name}."]
