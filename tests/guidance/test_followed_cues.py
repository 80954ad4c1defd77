"""Faults that the monitor of the same run finds are swapped, but for what the model cannot do without."""

import json
from dataclasses import replace

from lrptrain.cues.followed import Known
from lrptrain.cues.mark import Mark
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.places import places
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.texts import Language
from lrptrain.guidance.followed_cues import FollowedCues

TOP, BOTTOM = places("shortcut", "outside")[1:3]
MARK = Mark("a dot", "shortcut", "outside", ((5, ((0.5, -1.0),)),), (0.25,), (32, 32))
PHRASE = Phrase("the word", "shortcut", Language(lambda ids: []), phrases=(((7,), (8, 9)),))


def no_texts():
    raise AssertionError("nothing of texts is followed")


def resumed(followed, language=no_texts):
    after = FollowedCues()
    after.load_state_dict(json.loads(json.dumps(followed.state_dict())))
    assert after.state_dict() == json.loads(json.dumps(followed.state_dict()))  # also before it is restored
    after.restore(language)
    return after


def test_what_is_found_is_swapped_to_the_end_and_each_evaluation_counts_once():
    followed = FollowedCues()
    assert followed.follow(Known()) == ""
    said = followed.follow(Known((TOP,), 1))
    assert said == "from here on, samples swap what the monitor has found: the top edge"
    assert followed.follow(Known((BOTTOM,), 1)) == ""
    assert followed.follow(Known((), 2)) == ""
    assert followed.cues == (TOP,)
    assert "the bottom edge" in followed.follow(Known((TOP, BOTTOM), 3))
    assert followed.cues == (TOP, BOTTOM)
    followed.start_over()
    assert followed.cues == ()
    assert followed.follow(Known((TOP,), 3)) != ""


def test_a_part_of_what_is_swapped_is_swapped_already():
    followed = FollowedCues()
    followed.follow(Known((Surroundings(), TOP, *TOP.children()), 1))
    assert followed.cues == (Surroundings(),)


def test_what_the_model_cannot_do_without_is_swapped_no_more():
    followed = FollowedCues()
    followed.follow(Known((TOP,), 1))
    followed.follow(Known((BOTTOM,), 2))
    for evaluation, is_at_chance in ((3, True), (4, True), (5, False), (6, True), (7, True)):
        assert followed.follow(Known((), evaluation, is_at_chance)) == ""
    said = followed.follow(Known((BOTTOM,), 8, True))
    assert said.startswith(
        "without the bottom edge the answers were no better than guessing in 3 evaluations: it may be"
    )
    assert followed.cues == (TOP,)
    # Neither it nor a part of it comes back.
    assert followed.follow(Known((BOTTOM, *BOTTOM.children()), 9)) == ""
    assert followed.cues == (TOP,)
    after = resumed(followed)
    assert after.cues == (TOP,)
    assert after.dropped == (BOTTOM,)
    assert after.follow(Known((BOTTOM,), 1)) == ""
    for evaluation in (2, 3):
        assert after.follow(Known((), evaluation, True)) == ""
    assert "without the top edge the answers" in after.follow(Known((), 4, True))
    assert after.cues == ()
    for evaluation in (5, 6, 7):
        assert after.follow(Known((), evaluation, True)) == ""


def test_what_came_before_does_not_count_against_what_is_swapped():
    followed = FollowedCues()
    for evaluation in (1, 2):
        followed.follow(Known((), evaluation, True))
    followed.follow(Known((TOP,), 3, True))
    for evaluation in (4, 5):
        assert followed.follow(Known((), evaluation, True)) == ""
    assert "without the top edge" in followed.follow(Known((), 6, True))


def test_a_run_that_is_resumed_before_anything_is_found_has_nothing_to_drop():
    after = resumed(FollowedCues())
    for evaluation in (1, 2, 3, 4):
        assert after.follow(Known((), evaluation, True)) == ""
    assert after.dropped == ()


def test_a_resumed_run_knows_cues_of_every_kind_and_reads_texts_as_it_does_itself():
    followed = FollowedCues()
    followed.follow(Known((MARK, PHRASE, Surroundings()), 1))
    language = Language(lambda ids: ["x"])
    after = resumed(followed, lambda: language)
    assert after.cues == (MARK, PHRASE, Surroundings())
    assert after.cues[1].language is language


def test_a_mark_that_was_dropped_does_not_come_back_in_another_picture():
    followed = FollowedCues()
    followed.follow(Known((MARK,), 1))
    for evaluation in (2, 3, 4):
        followed.follow(Known((), evaluation, True))
    assert followed.dropped == (MARK,)
    assert followed.follow(Known((replace(MARK, pictures=((5, ((0.4, -1.0),)),)),), 5)) == ""
    assert followed.follow(Known((TOP,), 6)) != ""
