import pytest
import torch
from plain_texts import bert, roberta

from lrptrain.cues.pair import OneOfPair, Overlap


def exchanged(kind, own, source, writer=None, **options):
    writer = writer or bert()
    batch = writer.batch(own, source)
    cue = kind("", "unreviewed", writer.language, **options)
    result = cue.exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    return {"read": writer.read(result)[0], **result}


@pytest.mark.parametrize(
    ("number", "expected", "types"),
    [(0, "[CLS] u v w [SEP] c [SEP]", [0] * 5 + [1] * 2), (1, "[CLS] a b [SEP] x y [SEP]", [0] * 4 + [1] * 3)],
)
def test_one_text_of_a_pair_is_that_of_the_source(number, expected, types):
    result = exchanged(OneOfPair, ("a b", "c"), ("u v w", "x y"), number=number)
    assert result["read"] == expected
    assert result["token_type_ids"][0][result["attention_mask"][0] == 1].tolist() == types


def test_pairs_without_token_types_are_told_by_their_separators():
    expected = ["<s> u </s> </s> b </s>", "<s> a </s> </s> v </s>"]
    for number in range(2):
        result = exchanged(OneOfPair, ("a", "b"), ("u", "v"), roberta(), number=number)
        assert result["read"] == expected[number]


@pytest.mark.parametrize("kind", [OneOfPair, Overlap])
@pytest.mark.parametrize(
    ("own", "source"), [("a b", ("a", "a")), (("a", "b"), "a b"), (("a", ""), ("a", "a")), (("a", "b"), "")]
)
def test_what_is_no_pair_and_what_meets_none_stays(kind, own, source):
    writer = bert()
    assert exchanged(kind, own, source, writer)["read"] == writer.read(writer.batch(own))[0]


@pytest.mark.parametrize(
    ("own", "source", "second"),
    [
        (("a b c d", "e f"), ("u v", "u v"), {"a", "b", "c", "d"}),  # all of it
        (("a b c d", "a b"), ("u v", "w x"), {"w", "x"}),  # nothing
        (("a b c d", "a b c d"), ("u v", "u w"), None),  # one half
        (("a b c d", "a e f g"), ("u v", "u v u w"), None),
    ],
)
def test_as_many_words_of_the_second_text_stand_in_the_first_as_of_the_sources(own, source, second):
    _, words, after, _ = exchanged(Overlap, own, source)["read"].replace("[CLS]", "[SEP]").split("[SEP]")
    assert words.split() == own[0].split()
    share = sum(word in own[0].split() for word in after.split()) / len(after.split())
    theirs = source[1].split()
    assert share == sum(word in source[0].split() for word in theirs) / len(theirs)
    assert second is None or set(after.split()) <= second


def test_words_take_the_places_of_others_and_are_different_ones():
    assert exchanged(Overlap, ("a b c", "d e f"), ("u v", "u v"))["read"].split()[5:-1] == ["a", "b", "c"]
    assert exchanged(Overlap, ("a b c", "a d b"), ("u v w", "u x y"))["read"].split()[5:-1] == ["x", "d", "b"]
    assert exchanged(Overlap, ("a un ##seen", "a d"), ("u v w x", "u u"))["read"].split()[5:-1] == ["a", "un", "##seen"]
    assert exchanged(Overlap, ("a b", "x a"), ("u v", "p q"))["read"] == "[CLS] a b [SEP] x q [SEP]"
    # The source's "a" stands in the first text, too.
    assert exchanged(Overlap, ("a b", "a b"), ("u v", "a w"))["read"] == "[CLS] a b [SEP] w w [SEP]"
    # Two of three words are three of four.
    assert exchanged(Overlap, ("a b c d", "e f g h"), ("u v", "u v w"))["read"] == "[CLS] a b c d [SEP] b c d h [SEP]"
    # With nothing to put in its place a word stays.
    assert exchanged(Overlap, ("a", "a b"), ("u", "u u"))["read"] == "[CLS] a [SEP] a b [SEP]"
    assert exchanged(Overlap, ("a b", "a b"), ("u", "a b"))["read"] == "[CLS] a b [SEP] a b [SEP]"


def test_the_words_that_are_brought_have_the_type_of_the_second_text():
    result = exchanged(Overlap, ("a b", "c d"), ("u", "u"))
    assert result["read"].startswith("[CLS] a b [SEP]")
    assert result["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert torch.equal(result["attention_mask"][0], torch.ones(7, dtype=torch.long))
