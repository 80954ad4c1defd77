import math

import pytest
from examples import ENDED, EVIDENCE, NOT_SURE, OPEN, finding

from lrptrain.cues.colour import Colour
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import places
from lrptrain.cues.surroundings import Surroundings
from lrptrain.findings.sentences import listed, percent, sentences


@pytest.mark.parametrize(("one", "verdict"), [
    (finding(), "SHORTCUT: the model relies on the top left corner."),
    (OPEN, "The model reads the colours of the image."),
    (EVIDENCE, "The model reads the annotated object, which is evidence."),
    (NOT_SURE, "Not sure whether the model relies on the border."),
    (ENDED, "The model does not rely on the light of the image alone."),
])  # fmt: skip
def test_a_shortcut_is_said_of_a_fault_alone(one, verdict):
    said = sentences(one)
    assert said.verdict == verdict
    assert ("swap" in said.remedy) == (one in (finding(), OPEN))
    assert said.remedy.startswith("if it is no evidence") == (one is OPEN)
    assert str(one).startswith(verdict)
    assert repr(one) == f"Finding({verdict!r})"


@pytest.mark.parametrize(("one", "doubted"), [
    (finding(), True), (finding(plain={"where": "image"}), False), (OPEN, False), (NOT_SURE, False),
])  # fmt: skip
def test_what_lies_outside_of_annotations_may_be_evidence_that_nobody_marked(one, doubted):
    """Of a cue that people have declared to be a shortcut, no annotation says so."""
    assert ("Or the annotations are incomplete or shifted" in str(one)) == doubted


def test_the_evidence_is_in_sentences_of_its_own():
    said = sentences(finding(told_by=("the border", "the light"), first_epoch=2, epoch=5, excerpts=("so",)))
    assert said.effect == "Effect 40 points (30 to 50), of 24 images."
    assert said.share == "That is 80 % of the effect of everything outside the annotation."
    assert said.told_by == "The answer is also told by the border and the light."
    assert said.relevance == "50 % of the relevance is there, on 6 % of the image."
    assert said.history == "Since epoch 2."
    assert said.excerpt == "Such as sample 17: so"
    assert sentences(ENDED).history == "The model relied on it until epoch 1."
    assert sentences(finding(share=1.04)).share.startswith("That is 100 % of the effect of")
    nothing = sentences(finding(share=None, relevance=None))
    assert (nothing.share, nothing.told_by, nothing.relevance, nothing.history, nothing.excerpt) == ("",) * 5


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


BY_ITSELF = 'RelevanceGuidance("swap", swap=monitor.faults), or other data'


@pytest.mark.parametrize(("changes", "remedy"), [
    ({"plain": Surroundings().to_dict()}, 'RelevanceGuidance("swap"), or other data'),
    ({"plain": places("fault", "outside")[0].to_dict()}, 'RelevanceGuidance("swap"), or other data'),
    ({"guidance": 'guide(trainer, "swap", swap=monitor.faults)'}, 'guide(trainer, "swap"), or other data'),
    # What somebody declared a fault may lie anywhere, and of rows and volumes there is no other swap.
    ({"plain": Colour.of("evidence", "fault").to_dict()}, BY_ITSELF),
    ({"plain": Placement.of("size").to_dict()}, BY_ITSELF),
    ({"plain": {"where": "image"}}, BY_ITSELF),
    ({"plain": {"where": "text"}, "medium": "text"}, BY_ITSELF),
    ({"medium": "volume"}, BY_ITSELF),
])  # fmt: skip
def test_all_that_lies_outside_of_annotations_is_swapped_where_these_tell(changes, remedy):
    assert sentences(finding(**changes)).remedy == remedy
