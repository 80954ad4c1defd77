import pytest
import torch
from plain_texts import bert

from lrptrain.cues.length import Length


def resized(own, source):
    writer = bert()
    batch = writer.batch(own, source)
    cue = Length("the length", "unreviewed", writer.language)
    return writer.read(cue.exchange(batch, {name: rows.flip(0) for name, rows in batch.items()}))[0]


@pytest.mark.parametrize(
    ("own", "source", "result"),
    [
        ("a b c d e f", "x y z", "a b f"),
        ("a b c d e f", "x y", "a f"),
        ("a b c d e f", "x", "a"),
        ("a b c d", "u v w x y z", "a b c b c d"),
        ("a b", "u v w x y", "a b a a b"),
        ("a", "x y z", "a a a"),
        ("a b c", "x y z", "a b c"),
        ("a b c", "", "a b c"),
        ("", "a b c", ""),
    ],
)
def test_a_text_is_made_as_long_as_its_source_from_both_of_its_ends(own, source, result):
    assert resized(own, source).split() == ["[CLS]", *result.split(), "[SEP]"]


def test_each_text_of_a_pair_is_as_long_as_its_counterpart():
    assert resized(("a b c", "d"), ("x", "y z")) == "[CLS] a [SEP] d d [SEP]"
    assert resized(("a b c", "d e"), "x") == "[CLS] a [SEP] d e [SEP]"


def test_what_goes_along_with_a_token_is_said_again_with_it():
    writer = bert()
    batch = writer.batch(("a b", "c"), ("x y z", "u v w"), left=True)
    batch["argument:bbox"] = batch["input_ids"][..., None].expand(-1, -1, 4)
    sources = {name: rows.flip(0) for name, rows in batch.items()}
    result = Length("", "unreviewed", writer.language).exchange(batch, sources)
    assert writer.read(result)[0] == "[CLS] a b b [SEP] c c c [SEP]"
    assert torch.equal(result["argument:bbox"][..., 3], result["input_ids"])
    assert result["token_type_ids"][0].tolist() == [0] * 5 + [1] * 4
