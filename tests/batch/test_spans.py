"""Rationales of characters and words, by hand."""

import pytest
import torch

from lrptrain.batch import read_batch
from lrptrain.batch.spans import word_spans

# "a good film" as [CLS] a good fi ##lm [SEP]
OFFSETS = torch.tensor([[[0, 0], [0, 1], [2, 6], [7, 9], [9, 11], [0, 0]]] * 3)


def batch(**entries):
    return {"input_ids": torch.ones(3, 6, dtype=torch.long), "label": torch.zeros(3).long(), **entries}


@pytest.mark.parametrize(
    "rationale", [[[(2, 6)], [(7, 10), (0, 1)], None], [["good"], ["film", "a"], None], [["GOOD"], ["a", "film"], None]]
)
def test_spans_and_words_mark_their_tokens(rationale):
    read = read_batch(batch(rationale=rationale, offset_mapping=OFFSETS, text=["a good film"] * 3))["rationale"]
    assert read.tolist() == [[255, 0, 1, 0, 0, 255], [255, 1, 0, 1, 1, 255], [255] * 6]


def test_one_value_per_token_stays_as_it_is():
    values = [[255, 0, 1, 0, 0, 255]] * 3
    assert read_batch(batch(rationale=values))["rationale"].tolist() == values
    assert read_batch(batch(rationale=torch.tensor(values)))["rationale"].tolist() == values


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"rationale": [[(2, 6)]] * 3}, "return_offsets_mapping=True"),
        ({"rationale": [["good"]] * 3, "offset_mapping": OFFSETS}, "needs the 'text' of every sample"),
        (
            {"rationale": [["bad"]] * 3, "offset_mapping": OFFSETS, "text": ["a good film"] * 3},
            "'bad' is no word of the text 'a good film'",
        ),
        ({"rationale": [[(6, 2)]] * 3, "offset_mapping": OFFSETS}, "a span is .start, end."),
    ],
)
def test_what_is_missing_is_named(entries, message):
    with pytest.raises(ValueError, match=message):
        read_batch(batch(**entries))


def test_words_are_whole_words_and_all_of_them():
    assert word_spans("wow! a wow, no wowser", ["wow"]) == [(0, 3), (7, 10)]
    assert word_spans("wow! a wow", ["wow!"]) == [(0, 4)]
