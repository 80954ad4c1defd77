from dataclasses import replace
from pathlib import Path

import pytest
from examples import finding

from lrptrain.batch.parts import InputPart
from lrptrain.findings import OVERALL, Evidence, Scope, announce
from lrptrain.monitor.closing import closing_words
from lrptrain.monitor.power import Power

CONFIRMED = finding(
    scope=OVERALL, state="confirmed", kind="focus_at_position", where="the border (4 of 9 patches)",
    intervention=Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20),
)  # fmt: skip
FOUND = Power(True, "What could have been found: much.")


def said(*findings):
    return closing_words("Monitor ends", "epoch 3, on 20 samples", findings, FOUND, Path("runs/a")).splitlines()


def test_a_run_ends_with_its_verdict_and_where_to_look():
    assert said(finding(), CONFIRMED) == [
        "Monitor ends: SHORTCUT confirmed, all classes: the model reads the image's",
        "  border. In epoch 3, on 20 samples: 1 confirmed, 1 suspected, 0 refuted.",
        "  See: lrptrain dashboard runs/a",
    ]
    assert said(finding())[0] == "Monitor ends: no shortcut confirmed in epoch 3, on 20 samples, but suspected (0"


def test_what_was_only_removed_is_not_cleared():
    assert said(replace(CONFIRMED, state="unconfirmed"))[0].startswith("Monitor ends: no shortcut confirmed in epoch 3")


def test_a_clean_run_says_what_could_have_been_found():
    assert said(replace(CONFIRMED, state="refuted")) == [
        "Monitor ends: no shortcut found in epoch 3, on 20 samples (0 confirmed, 0",
        "  suspected, 1 refuted). What could have been found: much.",
        "  See: lrptrain dashboard runs/a",
    ]
    assert closing_words("Monitor", "epoch 3", (), FOUND, None).count("See") == 0


def test_a_model_that_answers_by_chance_has_no_verdict():
    assert closing_words("Monitor ends", "epoch 3, on 20 samples", (), Power(False, "It guesses."), None) == (
        "Monitor ends: no verdict on epoch 3, on 20 samples. It guesses."
    )


def test_what_a_run_cost_is_said_last():
    line = closing_words("Monitor ends", "epoch 3, on 20 samples", (), FOUND, None, cost="It took long.")
    assert line.endswith("What could have been found: much. It took long.")


def guided(kind, *names, part=None, medium="image"):
    found = replace(CONFIRMED, kind=kind, part=part, medium=medium)
    return " ".join(closing_words("Monitor", "epoch 3", [found], FOUND, None, guided_by=names).split())


def test_a_guidance_that_has_not_removed_it_is_told_with_what_to_try():
    assert 'The guidance (consistency) has not removed it: try "swap"' in guided("focus_at_position", "consistency")
    assert 'has not removed it: train longer, or try swap="outside+statistics"' in guided("focus_at_position", "swap")
    across = guided("fixed_mark_of_class", "swap", part=InputPart("patches", "the centre", (6, 6), (14,)))
    assert 'has not removed it: train longer, or anew with swap=["outside", finding.as_fault()]' in across
    word = guided("suspicious_token", "swap", part=InputPart("words", "the word", words=((7,),)), medium="text")
    assert "has not removed it: train longer, or anew with swap=[finding.as_fault()]" in word
    by_findings = guided("focus_at_position", "swap of findings")
    assert "The guidance (swap of findings) has not removed it: train longer, or anew on this finding" in by_findings
    assert 'guidance by "swap", swap="statistics"' in guided("reliance_on_statistics", "swap")
    assert "has not removed it" not in guided("focus_at_position")


MOVED = Evidence(0.2, (0.1, 0.3), 0.0, 0.001, 20)
DOG = Scope("class", "dog")
# Faults in one class, and of less effect than what a person has to judge.
FAULT = replace(CONFIRMED, intervention=MOVED)
FAULTS = {
    "a mark": replace(FAULT, kind="fixed_mark_of_class", scope=DOG, where="the top left corner"),
    "a place": replace(FAULT, scope=DOG),
    "the surroundings": replace(FAULT, kind="focus_outside_annotation", scope=DOG, target="predicted"),
    "of all": FAULT,
}
EDGES = replace(CONFIRMED, kind="reliance_on_edges", where="the image's edges", intervention=replace(MOVED, effect=0.6))
OPEN = {
    "edges": EDGES,
    "the middle": replace(CONFIRMED, may_be_evidence=True, where="the middle", intervention=replace(MOVED, effect=0.9)),
    "of one class": replace(EDGES, scope=DOG),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("other", OPEN.values(), ids=OPEN)
def test_a_fault_is_named_before_what_a_person_has_to_judge(fault, other):
    assert not other.is_fault
    for order in ([fault, other], [other, fault]):
        assert said(*order)[0].startswith("Monitor ends: SHORTCUT confirmed")
        assert announce(order)[0].startswith("SHORTCUT confirmed")
    assert said(other, replace(fault, state="suspected"))[0].startswith("Monitor ends: Confirmed, for you to judge")


def test_of_two_faults_the_one_that_moves_answers_more_is_named():
    graver = replace(FAULTS["a mark"], intervention=replace(MOVED, effect=0.5))
    for order in ([graver, FAULTS["of all"]], [FAULTS["of all"], graver]):
        assert said(*order)[0].startswith("Monitor ends: SHORTCUT confirmed, class dog")
