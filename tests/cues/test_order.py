import pytest
import torch
from plain_texts import bert

from lrptrain.cues.order import Order


def ordered(own, source):
    writer = bert()
    batch = writer.batch(own, source)
    cue = Order("the order of the words", "unreviewed", writer.language)
    return writer.read(cue.exchange(batch, {name: rows.flip(0) for name, rows in batch.items()}))[0]


@pytest.mark.parametrize(
    ("own", "source", "result"),
    [
        ("a b c d", "d c b a", "d c b a"),
        ("a x b y c", "c u b a v", "c x b y a"),
        ("a b a c", "c a b a", "c a b a"),  # said twice
        ("un ##seen b c", "c un ##seen", "c b un ##seen"),  # words of several tokens
        ("a b c", "b", "a b c"),
        ("a b c", "", "a b c"),
        ("", "a b", ""),
    ],
)
def test_words_that_both_have_stand_as_in_the_source(own, source, result):
    assert ordered(own, source).split() == ["[CLS]", *result.split(), "[SEP]"]


def test_each_text_of_a_pair_is_ordered_as_its_counterpart():
    assert ordered(("a b", "c d e"), ("b a", "e d c")) == "[CLS] b a [SEP] e d c [SEP]"


def test_what_goes_along_with_a_token_moves_with_it():
    writer = bert()
    batch = writer.batch("a b c", "c b a")
    batch["argument:bbox"] = batch["input_ids"][..., None].expand(-1, -1, 4)
    result = Order("", "unreviewed", writer.language).exchange(
        batch, {name: rows.flip(0) for name, rows in batch.items()}
    )
    assert torch.equal(result["argument:bbox"][..., 0], result["input_ids"])
