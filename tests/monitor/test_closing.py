from dataclasses import replace
from pathlib import Path

import pytest
from examples import ENDED, EVIDENCE, NOT_SURE, OPEN, finding

from lrptrain.monitor.closing import closing_words
from lrptrain.monitor.power import Power

TESTED = Power(True, "It does not rely on these alone: much.")


def said(*findings, power=TESTED, **options):
    text = closing_words("Monitor ends", "epoch 3, on 20 samples", findings, power, Path("runs/a"), **options)
    *lines, see = text.splitlines()
    assert see == "  See: lrptrain dashboard runs/a"
    assert max(map(len, lines)) <= 80
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("others", [(), (OPEN, NOT_SURE, ENDED, EVIDENCE)])
def test_a_run_ends_with_its_gravest_fault(others):
    milder = finding(name="a mark", effect=0.2, interval=(0.1, 0.3))
    shortcut = "SHORTCUT: the model relies on the top left corner."
    assert said(*others, finding()) == f"Monitor ends: {shortcut} In epoch 3, on 20 samples."
    for order in ((milder, finding()), (finding(), milder)):
        assert said(*others, *order).startswith(f"Monitor ends: {shortcut} And 1 other shortcut. In epoch 3")


def test_without_a_fault_it_says_what_was_tested():
    assert said(ENDED, EVIDENCE) == (
        "Monitor ends: no fault found in epoch 3, on 20 samples. It does not rely on these alone: much."
    )
    assert said(OPEN) == (
        "Monitor ends: no fault found in epoch 3, on 20 samples. The model reads the colours of the image: whether "
        "that is evidence, a person judges. It does not rely on these alone: much."
    )
    assert said(NOT_SURE, OPEN).startswith(
        "Monitor ends: not sure in epoch 3, on 20 samples. The model reads the colours of the image"
    )


def test_of_many_cues_there_are_numbers_in_three_lines():
    power = TESTED._replace(text="Not sure: " + "a very long name, " * 20, short="Not sure of 5 cues.")
    reads = [OPEN, replace(OPEN, name="the border"), replace(OPEN, name="a mark"), replace(OPEN, name="the light")]
    words = closing_words("Monitor ends", "epoch 3, on 20 samples", reads, power, None)
    assert "The model reads the colours of the image, the border and 2 more: whether" in " ".join(words.split())
    assert words.endswith("Not sure of 5 cues.")
    assert len(words.splitlines()) == 3


def test_without_annotations_nothing_is_acquitted():
    assert said(OPEN, power=TESTED._replace(can_fault=False)).startswith(
        "Monitor ends: nothing is annotated in epoch 3, on 20 samples. The model reads the colours of the image"
    )


def test_a_model_that_answers_by_chance_has_no_verdict():
    words = said(NOT_SURE, OPEN, power=Power(False, "It guesses."))
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
