import pytest
import torch
from plain_texts import bert

from lrptrain.cues.segment import AllWords, Segment, ends_of


def flipped(batch):
    return {name: rows.flip(0) for name, rows in batch.items()}


def chosen(cue, writer, text):
    batch = writer.batch(text)
    return writer.read({"input_ids": batch["input_ids"][0][cue.locate(batch)[0]][None]})[0].split()


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("a b c d e f g h", ["a", "b"], ["g", "h"]),
        ("a b c d e f g h i", ["a", "b", "c"], ["g", "h", "i"]),
        ("a b", ["a"], ["b"]),
        ("un ##seen b c d", ["un", "##seen"], ["d"]),
        ("", [], []),
        (("a b", "c d"), ["a", "c"], ["b", "d"]),
    ],
)
def test_beginning_and_end_are_a_quarter_of_the_words(text, first, last):
    writer = bert()
    beginning, end = ends_of("unreviewed", writer.language)
    assert (beginning.name, end.name) == ("the beginning of the text", "the end of the text")
    assert chosen(beginning, writer, text) == first
    assert chosen(end, writer, text) == last


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("a b . c d e f g . h", "a b .", "h"),
        ("a b c d e . f g h", "a b c d e .", "f g h"),  # more than a quarter
        ("a b ! c d ? e f .", "a b !", "e f ."),
        ("a b ... c d e ?! f", "a b ...", "f"),
        ("a b 。 c d e ！ f", "a b 。", "f"),  # noqa: RUF001
        ("a b c d .", "", ""),  # one sentence
        ("", "", ""),
    ],
)
def test_they_divide_into_a_sentence_if_there_are_several_and_a_word_which_do_not_divide(text, first, last):
    writer = bert()
    ends = ends_of("unreviewed", writer.language)
    parts = [each.children() for each in ends]
    names = [["the first sentence", "the first word"], ["the last sentence", "the last word"]]
    assert [[each.name for each in one] for one in parts] == names
    assert [chosen(sentence, writer, text) for sentence, _ in parts] == [first.split(), last.split()]
    words = text.split()
    assert [chosen(word, writer, text) for _, word in parts] == [words[:1], words[-1:]]
    for end, sentence in zip(ends, (first, last), strict=True):
        assert len(chosen(end, writer, text)) == max(-(-len(words) // 4), len(sentence.split()))
    assert {each.role for one in parts for each in one} == {"unreviewed"}
    assert not [part for one in parts for each in one for part in each.children()]


def test_an_end_is_exchanged_for_that_of_the_source_however_long():
    writer = bert()
    batch = writer.batch("a b c d e f g h", "i j k l")
    beginning, end = ends_of("unreviewed", writer.language)
    assert writer.read(beginning.exchange(batch, flipped(batch))) == [
        "[CLS] i c d e f g h [SEP]",
        "[CLS] a b j k l [SEP]",
    ]
    assert writer.read(end.exchange(batch, flipped(batch))) == ["[CLS] a b c d e f l [SEP]", "[CLS] i j k g h [SEP]"]


def test_of_an_end_that_is_a_fault_what_people_marked_stays():
    writer = bert()
    batch = writer.batch("a b* c d e f g h", "i* j k l")
    beginning = Segment("", "shortcut", writer.language, "outside")
    assert writer.read(beginning.exchange(batch, flipped(batch))) == [
        "[CLS] b c d e f g h [SEP]",
        "[CLS] a i j k l [SEP]",
    ]


def test_all_words_are_those_of_the_source_and_as_a_fault_those_beside_the_evidence():
    writer = bert()
    batch = writer.batch("a b* c", "d ##e f g*")
    assert writer.read(AllWords("", "unreviewed", writer.language).exchange(batch, flipped(batch))) == [
        "[CLS] d ##e f g [SEP]",
        "[CLS] a b c [SEP]",
    ]
    beside = AllWords("", "shortcut", writer.language, "outside")
    assert writer.read(beside.exchange(batch, flipped(batch))) == ["[CLS] d ##e f b [SEP]", "[CLS] a g c [SEP]"]


def test_a_record_tells_which_end_and_how_much():
    beginning, end = ends_of("unreviewed", bert().language)
    assert beginning.to_dict() == {
        "kind": "segment", "name": "the beginning of the text", "role": "unreviewed", "where": "text", "at_end": False,
        "unit": "part",
    }  # fmt: skip
    assert end.to_dict()["at_end"]
    assert AllWords("the words", "unreviewed", bert().language).to_dict()["kind"] == "words"


def test_what_nobody_judged_is_not_outside_and_a_word_is_judged_by_its_first_piece():
    writer = bert()
    batch = writer.batch(("a un ##seen b", "c d"), ("e f ##g h", "i j"))
    batch["rationale"] = torch.full_like(batch["input_ids"], 255)
    batch["rationale"][:, 1] = 1  # a, e
    batch["rationale"][0, [2, 4]] = 0  # un, b; the rest of "unseen" has no label, nor have c and d
    batch["rationale"][1, [2, 4]] = 0
    changed = AllWords("x", "shortcut", writer.language, "outside").exchange(batch, flipped(batch))
    assert writer.read(changed) == ["[CLS] a f ##g h [SEP] c d [SEP]", "[CLS] e un ##seen b [SEP] i j [SEP]"]
