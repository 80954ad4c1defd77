"""From tested cues to findings."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from examples import explained
from plain_texts import bert

from lrptrain.batch import Sample
from lrptrain.cues.family import Family
from lrptrain.cues.length import Length
from lrptrain.cues.measure import Effect
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import Place, places
from lrptrain.cues.search import Judged
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual.colour import Colour
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.reporting import findings_of, news_among, relevance_on, shown_rows

CORNER = Place("the corner", "shortcut", (0.0, 0.0, 0.5, 0.5))
NAMES = ["a", "b", "c"]


def evaluation(epoch=0, count=9):
    """Images of 4 x 4 pixels and 2 x 2 patches, of which the first has three quarters of the relevance."""
    samples = [Sample(i, i % 3, {"image": torch.zeros(1, 4, 4)}) for i in range(count)]
    relevance = {"label": torch.tensor([3.0, 1.0, -5.0, 0.0])}
    return Evaluation([explained(x, np.eye(3)[x.label], maps=relevance) for x in samples], samples, epoch, 10 * epoch)


def judged(cue=CORNER, verdict="relies", named=True, low=0.2, **changes):
    values = np.arange(9) / 10
    return replace(Judged(cue, verdict, Effect(0.4, low, 0.6, 9), values, np.arange(9), named=named), **changes)


def reported(judgements, previous=(), epoch=0):
    return findings_of(judgements, evaluation(epoch), NAMES, lambda ids: [], previous)


def test_a_finding_has_the_effect_its_classes_its_samples_and_the_relevance():
    (found,) = reported([judged(also_relies_on=("the border",), within="the top", share=0.9)])
    assert (found.name, found.kind, found.role, found.verdict) == ("the corner", "place", "shortcut", "relies")
    assert (found.effect, found.interval, found.samples) == (0.4, (0.2, 0.6), 9)
    assert found.by_class == pytest.approx({"a": 0.3, "b": 0.4, "c": 0.5})
    assert found.worst_samples == (8, 7, 6, 5, 4, 3)
    assert (found.relevance, found.area) == (pytest.approx(0.75), pytest.approx(0.25))
    assert (found.within, found.share, found.also_relies_on) == ("the top", 0.9, ("the border",))
    assert found.cue is CORNER
    assert found.plain == CORNER.to_dict()


def test_of_several_cues_within_one_the_first_alone_has_a_share():
    """What they do overlaps: their shares could add up to more than all of it."""
    other = replace(CORNER, name="another")
    found = reported([judged(within="the top", share=0.9), judged(other, within="the top", share=0.8)])
    assert [each.share for each in found] == [0.9, None]
    found = reported([judged(within="the top", share=0.9), judged(other, within="the side", share=0.8)])
    assert [each.share for each in found] == [0.9, 0.8]


def test_samples_that_only_take_a_cue_do_not_show_it():
    writer = bert()
    samples = writer.samples([f"a b {'zip' if i % 3 == 0 else 'c'} d" for i in range(9)])
    cue = Phrase("the word 'zip'", "unreviewed", writer.language, phrases=((tuple(writer.ids("zip")),),))
    assert shown_rows(judged(cue), samples, 2) == [6, 3]
    assert shown_rows(judged(cue), samples, 6) == [6, 3]
    assert shown_rows(judged(cue, values=np.where(np.arange(9) == 6, np.nan, 0.5)), samples, 6) == [0, 3]
    assert shown_rows(judged(Length("the length", "unreviewed", writer.language)), samples, 3) == [8, 7, 6]


def test_where_samples_that_have_a_cue_show_no_effect_those_that_take_it_do():
    """A name in a text of praise changes nothing; put into one of blame, it turns the answer."""
    writer = bert()
    samples = writer.samples([f"a b {'zip' if i < 5 else 'c'} d" for i in range(9)])
    cue = Phrase("the word 'zip'", "unreviewed", writer.language, phrases=((tuple(writer.ids("zip")),),))
    some = judged(cue, values=np.array([0.01] * 5 + [0.9] * 4))
    assert shown_rows(some, samples, 2) == [5, 6]
    assert shown_rows(judged(cue, values=np.array([0.21, *[0.01] * 4, *[0.9] * 4])), samples, 2) == [0]


def test_a_text_is_quoted_where_the_cue_stands():
    writer = bert()
    samples = writer.samples(["x " * 20 + "zip" + " y" * (20 - i) for i in range(9)])
    content = [np.array([-1, *writer.ids("x " * 20 + "zip" + " y" * (20 - i)), -1]) for i in range(9)]
    relevance = {"label": torch.arange(43.0)}
    texts = [
        explained(x, np.eye(3)[i % 3], maps={"label": relevance["label"][: len(ids)]}, grid=None, content_ids=ids)
        for i, (x, ids) in enumerate(zip(samples, content, strict=True))
    ]
    cue = Phrase("the word 'zip'", "unreviewed", writer.language, phrases=((tuple(writer.ids("zip")),),))
    two = [judged(cue), judged(Length("the length", "unreviewed", writer.language))]
    zipped, length = findings_of(two, Evaluation(texts, samples), NAMES, writer.language.name_tokens)
    assert zipped.excerpts == tuple(f'sample {i}: "... x x x x x zip y y y y y ..."' for i in (8, 7, 6))
    assert length.excerpts[0] == 'sample 8: "... y y y y y y"'  # it lies everywhere: the most relevant token


@pytest.mark.parametrize("call", [
    'RelevanceGuidance("swap", swap=monitor.faults)',
    'lrptrain.guide(trainer, "swap", swap=monitor.faults, task="binary")',
    'lrptrain.Guidance("swap", swap=report.faults, optimizer=optimizer)',
])  # fmt: skip
def test_what_is_named_has_a_line_that_swaps_it(call):
    def fixes(*cues, **changes):
        found = findings_of([judged(each, **changes) for each in cues], evaluation(), NAMES, lambda ids: [], (), call)
        return [each.fix for each in found]

    holder = "report" if "report" in call else "monitor"
    named = f"{holder}.faults"
    # Of what lies outside of annotations, all is swapped.
    assert fixes(Surroundings(), places("shortcut", "outside")[0]) == [call.replace(f", swap={named}", "")] * 2
    # What somebody declared a fault may lie anywhere.
    for cue in (CORNER, Colour.of("evidence", "shortcut"), Placement.of("size").declared("shortcut")):
        assert fixes(cue) == [call.replace(named, f'{holder}["{cue.name}"]')]
    assert fixes(Colour.of("image", "unreviewed")) == [call.replace(named, f'{holder}["the colours of the image"]')]
    # What may be evidence is swapped by name, also outside.
    assert fixes(places("unreviewed", "outside")[0]) == [
        call.replace(named, f'{holder}["{places("unreviewed")[0].name}"]')
    ]
    assert fixes(CORNER, verdict="inconclusive") == fixes(CORNER.declared("annotation")) == [""]
    # Sides of one frame are swapped together.
    two = [replace(CORNER, name=f'"{i}"', box=(0.0, 0.0, 1.0, 0.2 * i)) for i in (1, 2)]
    one, other = (f'{holder}["\\"{i}\\""]' for i in (1, 2))
    assert fixes(*two) == [call.replace(named, f"[{one}, {other}]"), call.replace(named, f"[{other}, {one}]")]
    assert fixes(*(each.declared("unreviewed") for each in two))[0] == call.replace(named, f"[{one}.cue, {other}.cue]")
    assert fixes(two[0], two[1].declared("unreviewed"))[0] == call.replace(named, one)


def test_what_nobody_would_see_is_named_by_its_code_point():
    (found,) = reported([judged(replace(CORNER, name="the word 'a\u200bb'"), also_relies_on=("the word '\u200b'",))])
    assert (found.name, found.also_relies_on) == ("the word 'aU+200Bb'", ("the word 'U+200B'",))
    assert found.fix.endswith("swap=monitor[\"the word 'aU+200Bb'\"])")


def test_of_two_answers_each_has_no_effect_of_its_own():
    two = evaluation()
    two.samples[:] = [replace(each, probabilities=np.eye(3)[i % 2]) for i, each in enumerate(two.samples)]
    (found,) = findings_of([judged()], two, NAMES, lambda ids: [])
    assert found.by_class == {}


def test_a_fault_comes_before_what_a_person_judges_and_else_what_is_named_first():
    border, corner = places("unreviewed")[0], replace(CORNER, name="another corner")
    found = reported([judged(border, low=0.5), judged(low=0.1), judged(corner, low=0.2)])
    assert [each.name for each in found] == ["the corner", "another corner", border.name]


def test_of_two_cues_of_one_name_the_first_is_reported():
    (found,) = reported([judged(), judged(low=0.1)])
    assert found.interval[0] == 0.2


def test_an_answer_that_alone_is_told_is_in_the_name():
    (found,) = reported([judged(answer=1)])
    assert found.name == "the corner, for answers 'b'"


def test_what_is_not_named_is_left_out_but_for_doubts_about_faults():
    border = places("unreviewed")[0]
    kept = reported(
        [
            judged(named=False),
            judged(replace(CORNER, name="doubt"), "inconclusive", False),
            judged(replace(CORNER, name="part"), "inconclusive", False, within="the top"),
            judged(border, "inconclusive", False),
            judged(replace(CORNER, name="none"), "does not rely", False),
        ]
    )
    assert [each.name for each in kept] == ["doubt"]


@dataclass(frozen=True)
class Rest(Place):
    """All that is no evidence."""

    is_rest = True


def test_a_doubt_about_all_that_is_no_evidence_is_reported_within_a_whole_too():
    rest = Rest("the rest", "shortcut", CORNER.box)
    assert [each.name for each in reported([judged(rest, "inconclusive", False, within="the words")])] == ["the rest"]


def test_history_goes_on_and_an_end_is_kept():
    first = reported([judged()])
    second = reported([judged()], first, 1)
    third = reported([judged(verdict="does not rely", named=False)], second, 2)
    (ended,) = third
    assert (ended.first_epoch, ended.epochs) == (0, (0, 1, 2))
    assert ended.verdicts == ("relies", "relies", "does not rely")
    assert ended.history == (0.4, 0.4, 0.4)
    assert ended.relied_until == 1
    assert reported([], third, 3) == []


def test_what_people_have_since_called_a_fault_is_another_finding():
    before = reported([judged(CORNER.declared("unreviewed"))])
    (found,) = reported([judged()], before, 1)
    assert (found.first_epoch, found.verdicts) == (1, ("relies",))
    assert news_among(before, [found]) == [found]


def test_only_the_last_ended_ones_are_kept():
    cues = [replace(CORNER, name=str(i)) for i in range(11)]
    before = reported([judged(each) for each in cues])
    after = reported([judged(each, "does not rely", False) for each in cues], before, 1)
    assert [each.name for each in after] == [each.name for each in cues[3:]]


def test_news_are_what_it_newly_relies_on_and_any_verdict_on_faults():
    border = places("unreviewed")[0]
    first = reported([judged(), judged(border)])
    assert news_among((), first) == first
    assert news_among(first, reported([judged(), judged(border)], first, 1)) == []
    ended = reported([judged(verdict="inconclusive", named=False), judged(border, "inconclusive", False)], first, 1)
    assert [each.name for each in news_among(first, ended)] == ["the corner"]


def test_of_a_text_the_area_is_a_share_of_its_content():
    writer = bert()
    (sample,) = writer.samples(["a b 1"])
    content = np.array([-1, *writer.ids("a b 1"), -1])
    relevance = {"label": torch.tensor([0.0, 1.0, 0.0, 3.0, 0.0])}
    one = explained(sample, maps=relevance, grid=None, content_ids=content)
    shares = relevance_on(
        Family.of("numbers", "unreviewed", writer.language), Evaluation([one], [sample]), np.arange(1)
    )
    assert shares == pytest.approx((3 / 4, 1 / 3))


def test_what_lies_everywhere_has_no_share_of_the_relevance():
    assert relevance_on(Colour.of("image", "unreviewed"), evaluation(), np.arange(9)) == (None, None)
    nowhere = Place("nowhere", "unreviewed", (0.0, 0.0, 0.0, 0.0))
    assert relevance_on(nowhere, evaluation(), np.arange(9)) == (None, None)
