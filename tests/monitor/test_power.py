"""What an evaluation without a fault shows, and how a run ends."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, explained, finding

from lrptrain.batch import Sample
from lrptrain.cues.measure import Effect
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.places import places
from lrptrain.cues.row_mark import RowMark
from lrptrain.cues.search import Judged
from lrptrain.monitor.power import Power, closing_words, lines_of, shown_by
from tests.plain_texts import bert

BORDER, TOP, *_ = places("unreviewed")
MISSED = "Could be missed: cues that decide under 17 % of samples."
"""Of 16 samples none flips: 1 - 0.05^(1/16)."""


def judged(cue, verdict):
    return Judged(cue, verdict, Effect(0.0, -0.1, 0.1, 16), np.zeros(16), np.arange(16))


def scored(count=16, right=True):
    answers = [i % 2 for i in range(count)]
    return [explained(Sample(i, each if right else 1 - each, {}), np.eye(2)[each]) for i, each in enumerate(answers)]


def test_without_a_label_nobody_knows_whether_a_model_guesses():
    unlabelled = [replace(each, sample=replace(each.sample, label=-1)) for each in scored()]
    power = shown_by(unlabelled, [judged(TOP, "does not rely")], [], 0.95)
    assert power.tells
    assert power.doubt.startswith("No sample has a label")
    assert not shown_by(scored(), [judged(TOP, "does not rely")], [], 0.95).doubt


def test_it_says_what_was_tested_and_what_was_not():
    power = shown_by(scored(), [judged(BORDER, "inconclusive"), judged(TOP, "does not rely")], ["the rest: why"], 0.95)
    assert power.tells
    assert power.text == (
        "Inconclusive whether it relies on: the border. It does not rely on these alone: the top edge. "
        f"{MISSED} Not tested: the rest: why."
    )
    assert power.short == f"Inconclusive: 1 cue. It does not rely on 1 cue alone. {MISSED} Not tested: the rest: why."
    assert not power.can_fault
    assert shown_by(scored(), [judged(BORDER.declared("shortcut"), "inconclusive")], [], 0.95).can_fault


def test_what_few_samples_would_show_is_said_of_shortcuts_and_of_other_cues():
    """Of 128 samples that all stay, 2.3 % may flip; of 12, 22 %."""
    many = replace(judged(BORDER.declared("shortcut"), "does not rely"), values=np.zeros(128))
    few = replace(judged(TOP, "does not rely"), values=np.zeros(12))
    shortcuts, others = "shortcuts that decide under 2 % of samples", "cues that decide under 22 % of samples"
    assert lines_of([many, few], [])[-1] == f"Could be missed: {shortcuts} and {others}."
    assert lines_of([many], [])[-1] == f"Could be missed: {shortcuts}."
    three = np.r_[np.ones(3), np.zeros(125)]
    assert "under 6 %" in lines_of([replace(many, values=three)], [])[-1]


def test_annotated_samples_could_have_had_a_fault_where_nothing_outside_was_tested():
    annotated = [replace(each, annotated=np.array([True, False])) for each in scored()]
    for count, can_fault in ((8, True), (7, False)):
        some = [*annotated[:count], *scored()[count:]]
        assert shown_by(some, [judged(TOP, "does not rely")], [], 0.95).can_fault is can_fault


@pytest.mark.parametrize(
    ("samples", "answer", "text"),
    [
        (scored(7), "", "7 samples are too few for a verdict; 8 can be enough."),
        (scored(1), "", "1 sample is too few for a verdict; 8 can be enough."),
        (scored(right=False), "", "The model is no better than guessing. Train longer."),
        (scored(), "It answers 'a'.", "It answers 'a'."),
    ],
)
def test_where_nothing_can_be_known_it_says_why(samples, answer, text):
    power = shown_by(samples, [judged(BORDER, "does not rely")], [], 0.95, answer)
    assert (power.tells, power.text) == (False, text)


def test_nothing_tested_tells_nothing():
    assert not shown_by(scored(), [], ["anything: cues=None"], 0.95).tells


def test_of_two_cues_of_one_name_the_most_severe_is_said():
    other = replace(TOP, name=BORDER.name)
    assert lines_of([judged(BORDER, "relies"), judged(other, "inconclusive")], []) == []
    both = lines_of([judged(BORDER, "does not rely"), judged(other, "inconclusive")], [])
    assert both == ["Inconclusive whether it relies on: the border.", MISSED]


def test_lists_of_words_are_not_said_beside_their_words():
    language = bert().language
    one, several = (Phrase(f"the words {n}", "unreviewed", language, phrases=(((1,),), ((2,),))[:n]) for n in (1, 2))
    assert lines_of([judged(one, "inconclusive"), judged(several, "inconclusive")], []) == [
        "Inconclusive whether it relies on: the words 1."
    ]


def test_what_samples_propose_is_no_news_unless_it_may_be_a_fault():
    mark = RowMark("rows like row 3 of sample 7", "unreviewed", "rows", (0.0, 1.0), 0.5)
    for verdict in ("inconclusive", "does not rely"):
        assert lines_of([judged(mark, verdict)], []) == []
    doubt = judged(mark.declared("shortcut"), "inconclusive")
    assert lines_of([doubt], []) == [f"Inconclusive whether it relies on: {mark.name}."]


TESTED = Power(True, "It does not rely on these alone: much.")


def said(*findings, power=TESTED, **options):
    text = closing_words("Monitor ends", "epoch 3, on 20 samples", findings, power, Path("runs/a"), **options)
    message, see, fix = text.partition("\n  See: lrptrain dashboard runs/a")
    assert see
    assert max(map(len, message.splitlines())) <= 80
    return " ".join(message.split()) + fix.replace("\n ", " |")


@pytest.mark.parametrize("others", [(), (OPEN, INCONCLUSIVE, ENDED, EVIDENCE)])
def test_a_run_ends_with_its_first_fault_the_gravest(others):
    milder = finding(name="a mark", effect=0.2, interval=(0.1, 0.3))
    shortcut = "SHORTCUT: the model relies on the top left corner."
    effect = "Effect 40 points (30 to 50), of 24 images."
    fix = 'Fix: RelevanceGuidance("swap")'
    rest = ", 1 inconclusive; 1 needs review: the colours of the image" if others else ""
    words = f"Monitor ends: {shortcut} {effect} In epoch 3, on 20 samples:"
    assert said(*others, finding()) == f"{words} 1 shortcut{rest}. | {fix}"
    assert said(finding(), milder, *others).startswith(f"{words} 2 shortc")


def test_without_a_fault_it_says_what_was_tested():
    assert said(ENDED, EVIDENCE) == (
        "Monitor ends: 0 shortcuts. In epoch 3, on 20 samples. It does not rely on these alone: much."
    )
    assert said(OPEN) == (
        "Monitor ends: 0 shortcuts; 1 needs review: the colours of the image. In epoch 3, on 20 samples. | If the "
        'model should not use it: RelevanceGuidance("swap", swap=monitor["the colours of the image"])'
    )
    assert said(INCONCLUSIVE, OPEN).startswith("Monitor ends: 0 shortcuts, 1 inconclusive; 1 needs review: the colours")


def test_of_many_cues_there_are_numbers_in_two_lines():
    power = TESTED._replace(text="Not sure: " + "a very long name, " * 20, short="Inconclusive: 5 cues.")
    assert closing_words("Monitor", "epoch 3", (), power, None).endswith("Inconclusive: 5 cues.")
    reads = [OPEN, replace(OPEN, name="the border"), replace(OPEN, name="a mark"), replace(OPEN, name="the light")]
    words = closing_words("Monitor ends", "epoch 3, on 20 samples", reads, power, None)
    assert "4 need review: the colours of the image, the border, a mark and 1 more." in " ".join(words.split())
    assert len(words.splitlines()) == 3


def test_without_annotations_nothing_is_acquitted():
    assert said(OPEN, power=TESTED._replace(can_fault=False)).startswith(
        "Monitor ends: No annotations, so that nothing can be flagged as a shortcut; 1 needs review: the colours of the"
    )


def test_a_model_that_answers_by_chance_has_no_verdict():
    words = said(INCONCLUSIVE, OPEN, power=Power(False, "It guesses."))
    assert words == "Monitor ends: no verdict on epoch 3, on 20 samples. It guesses."


def test_a_collapse_is_graver_than_what_the_model_reads():
    words = said(finding(), collapse="COLLAPSED: one answer.")
    assert words == "Monitor ends: COLLAPSED: one answer. In epoch 3, on 20 samples."


def test_what_a_run_cost_is_said_last():
    assert said(cost="It took long.").endswith("alone: much. It took long.")


def test_processes_that_do_not_write_name_no_folder():
    assert "See" not in closing_words("Monitor", "epoch 3", (), TESTED, None)


def test_a_guidance_that_has_not_removed_it_is_told_with_what_to_try():
    assert 'The guidance (consistency) has not removed it: try "swap"' in said(finding(), guided_by=["consistency"])
    swapped = said(finding(), guided_by=["swap of surroundings", "energy"])
    assert "(swap of surroundings + energy) has not removed it: train longer (" in swapped
    assert "has not removed it" not in said(finding())
    assert "has not removed it" not in said(OPEN, guided_by=["swap"])
