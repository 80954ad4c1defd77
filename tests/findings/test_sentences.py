import math
from dataclasses import replace

import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

from lrptrain.findings.sentences import beside_guessing, headline, listed, percent, sentences


@pytest.mark.parametrize(("one", "verdict"), [
    (finding(), "SHORTCUT: the model relies on the top left corner."),
    (OPEN, "NEEDS REVIEW: the model relies on the colours of the image."),
    (EVIDENCE, "The model relies on the annotated object, as you declared that it should."),
    (INCONCLUSIVE, "Inconclusive: the model may rely on the border."),
    (ENDED, "The model does not rely on the light of the image alone."),
])  # fmt: skip
def test_a_shortcut_is_said_of_a_fault_alone(one, verdict):
    said = sentences(one)
    assert said.verdict == verdict
    assert ("swap" in said.remedy) == (one in (finding(), OPEN))
    assert said.remedy.startswith("If the model should not use it: ") == (one is OPEN)
    assert said.remedy.startswith("Fix: ") == (one == finding())
    assert str(one).startswith(verdict)
    assert repr(one) == f"Finding({verdict!r})"


@pytest.mark.parametrize(("one", "doubted"), [
    (finding(), True), (finding(plain={"where": "image"}), False), (OPEN, False), (INCONCLUSIVE, False),
])  # fmt: skip
def test_what_lies_outside_of_annotations_may_be_evidence_that_nobody_marked(one, doubted):
    """Of a cue that people have declared to be a shortcut, no annotation says so."""
    assert ("Or the annotations are incomplete or shifted" in str(one)) == doubted


def test_the_evidence_is_in_sentences_of_its_own():
    said = sentences(
        finding(also_relies_on=("the border", "the light"), first_epoch=2, epoch=5, excerpts=("sample 17: so",))
    )
    assert said.effect == "Effect 40 points (30 to 50), of 24 images."
    assert said.share == "That is 40 of the 50 points of everything outside the annotation."
    assert said.also_relies_on == "The model also relies on the border and the light."
    assert said.relevance == "50 % of the relevance is there, on 6 % of the image."
    assert said.history == "Since epoch 2."
    assert said.excerpt == "Such as sample 17: so"
    assert sentences(ENDED).history == "The model relied on it until epoch 1."
    assert sentences(finding(share=1.57)).share == "That is all of the effect of everything outside the annotation."
    nothing = sentences(finding(share=None, relevance=None))
    assert (nothing.share, nothing.also_relies_on, nothing.relevance, nothing.history, nothing.excerpt) == ("",) * 5


def test_the_answer_that_a_cue_tells_most_is_named():
    assert "Most" not in sentences(finding(by_class={"cat": 0.5, "dog": 0.4, "owl": 0.3})).effect
    said = sentences(finding(effect=0.1, by_class={"cat": 0.3, "dog": 0.0, "owl": 0.0})).effect
    assert said.endswith(" Most of all in answers 'cat': 30 points.")


def test_where_there_was_no_such_test_the_note_says_so():
    assert sentences(finding(effect=math.nan, note="Found by an earlier version.")).effect == (
        "Found by an earlier version."
    )
    assert sentences(finding(note="So.")).effect.endswith("of 24 images. So.")


def test_numbers_and_lists_are_short():
    assert [percent(share) for share in (0.0, 0.004, 0.0001, 0.12, 1.0)] == ["0 %", "0.4 %", "0 %", "12 %", "100 %"]
    assert listed(["a"]) == "a"
    assert listed("abcdefgh") == "a, b, c, d, e, f and 2 more"
    assert sentences(finding(effect=-0.001, interval=(-0.01, 0.01))).effect.startswith("Effect 0 points (-1 to 1)")


def test_accuracy_is_said_beside_guessing():
    assert beside_guessing(0.74, 0.25) == ["accuracy 74 %", "guessing 25 %"]
    assert beside_guessing(1.0, math.nan) == ["accuracy 100 %"]
    assert beside_guessing(math.nan, math.nan) == []


def test_the_headline_counts_shortcuts_and_names_what_needs_review():
    assert headline([finding(), finding(name="b"), EVIDENCE, ENDED]) == "2 shortcuts."
    assert headline([OPEN]) == "0 shortcuts; 1 needs review: the colours of the image."
    assert headline([finding(), OPEN, replace(OPEN, name="b")]) == (
        "1 shortcut; 2 need review: the colours of the image and b."
    )
    assert headline([INCONCLUSIVE]) == "0 shortcuts, 1 inconclusive."
    assert headline([OPEN], can_fault=False).startswith(
        "No annotations, so that nothing can be flagged as a shortcut; 1 needs review: "
    )
    assert headline([finding()], can_fault=False) == "1 shortcut."  # declared


@pytest.mark.parametrize(("effects", "said"), [
    ((0.22,), "Most of the effect of the image (68 of 90 points) lies in nothing that is named here."),
    ((0.22, 0.2), "Most of the effect of the image (48 of 90 points) lies in nothing that is named here."),
    ((0.22, 0.24), ""),  # together they may be more than half of it
    ((0.46,), ""),
])  # fmt: skip
def test_where_most_of_it_is_in_nothing_that_is_named_the_headline_says_so(effects, said):
    first, *further = [
        finding(name=str(i), role="unreviewed", effect=x, within="the image", share=None) for i, x in enumerate(effects)
    ]
    found = [replace(first, share=first.effect / 0.9), *further, ENDED]
    assert headline(found).partition(". ")[2] == said
    # Of a text with annotations, the rest may be what people marked.
    assert headline([replace(found[0], medium="text"), *found[1:]]).partition(". ")[2] == ""


def test_of_what_is_not_known_no_share_is_said():
    assert sentences(finding(effect=math.nan)).share == ""
    assert finding(effect=math.nan).whole is None
