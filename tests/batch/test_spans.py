"""Rationales of characters and words, by hand."""

import pytest
import torch
from torch.utils.data import default_collate

from lrptrain.batch import read_batch
from lrptrain.batch.spans import token_rationale, word_spans

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


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rationale", [[[0, 1, 0], [0, 0, 1, 0], None], [[(2, 6)], [(5, 9)], []], [["b"], ["cd"], []]])
def test_what_is_not_padded_stands_where_its_tokens_do(rationale, side):
    # "a bcd" as [CLS] bcd [SEP], and "a b cd" as [CLS] b cd [SEP]; the third is as long as the batch.
    offsets = [[[0, 0], [2, 6], [0, 0]], [[0, 0], [2, 5], [5, 9], [0, 0]], [[0, 0]] * 5]
    lengths = (3, 4, 5)
    mask = torch.tensor([[int(i < n if side == "right" else i >= 5 - n) for i in range(5)] for n in lengths])
    entries = {"input_ids": mask, "attention_mask": mask, "label": torch.zeros(3), "rationale": rationale}
    texts = ["a b", "a abc cd", "a"]
    read = read_batch({**entries, "offset_mapping": offsets, "text": texts})["rationale"]
    marked = [[0, 1, 0], [0, 0, 1, 0]]
    for row, attended, expected in zip(read, mask.bool(), marked, strict=False):
        assert (row[attended] == 1).tolist() == [bool(x) for x in expected]
        assert (row[~attended] == 255).all()
    assert (read[2] == 255).all()


def test_spans_are_taken_as_tensors():
    spans = torch.tensor([[[2, 6]]] * 3)
    assert (
        read_batch(batch(rationale=spans, offset_mapping=OFFSETS))["rationale"].tolist() == [[255, 0, 1, 0, 0, 255]] * 3
    )


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


def test_a_wrong_rationale_costs_its_sample_alone():
    entries = {"offset_mapping": OFFSETS, "text": ["a good film"] * 3, "sample_id": [7, 8, 9]}
    for wrong in (["bad"], [(3, 3)], "good", [("a", "good"), "film"]):
        with pytest.warns(UserWarning, match="1 of 2 rationales of a batch cannot be used.*: sample 8: "):
            read = read_batch(batch(rationale=[[(2, 6)], wrong, None], **entries))["rationale"]
        assert read.tolist() == [[255, 0, 1, 0, 0, 255], [255] * 6, [255] * 6]
    with pytest.warns(UserWarning, match="sample 1 of a batch: the rationale's 'bad' is no word"):
        read_batch(batch(rationale=[["good"], ["bad"], None], offset_mapping=OFFSETS, text=["a good film"] * 3))


@pytest.mark.parametrize("nothing", [[[]] * 3, [(), None, []]])
def test_no_rationale_at_all(nothing):
    assert read_batch(batch(rationale=nothing))["rationale"].tolist() == [[255] * 6] * 3


def test_no_rationale_beside_others():
    read = read_batch(batch(rationale=[[], [(2, 6)], None], offset_mapping=OFFSETS))["rationale"]
    assert read.tolist() == [[255] * 6, [255, 0, 1, 0, 0, 255], [255] * 6]
    read = read_batch(batch(rationale=[[0, 1, 0, 0, 0, 0], None, None]))["rationale"]
    assert read.tolist() == [[0, 1, 0, 0, 0, 0], [255] * 6, [255] * 6]


@pytest.mark.parametrize(
    ("rationale", "message"),
    [
        ("good", "not the text 'good'"),
        (["good"] * 3, "put words in a list"),
        ([(2, 6)] * 3, r"put each single .start, end. in a list"),
        (default_collate([[(2, 6)]] * 3), "default_collate turns lists of spans or words round"),
        (default_collate([["good"]] * 3), "default_collate turns lists of spans or words round"),
    ],
)
def test_another_form_is_named(rationale, message):
    with pytest.raises(ValueError, match=message):
        read_batch(batch(rationale=rationale, offset_mapping=OFFSETS, text=["a good film"] * 3))


# "a film" and "it is" as [CLS] a film [SEP] it is [SEP], and pairs of which the first is one token, or padded left
PAIRS = torch.tensor(
    [
        [[0, 0], [0, 1], [2, 6], [0, 0], [0, 2], [3, 5], [0, 0]],
        [[0, 0], [0, 4], [0, 0], [0, 2], [3, 5], [6, 9], [0, 0]],
        [[0, 0], [0, 0], [0, 1], [2, 6], [0, 0], [0, 6], [0, 0]],
    ]
)


@pytest.mark.parametrize("types", [False, True])
def test_spans_of_pairs_are_of_the_first_text(types):
    entries = {"input_ids": torch.ones(3, 7, dtype=torch.long), "label": torch.zeros(3).long()}
    if types:
        entries["token_type_ids"] = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1], [0] * 5 + [1, 1]])
    spans = [[(3, 5)], [(0, 2)], [(0, 6)]]
    read = read_batch({**entries, "rationale": spans, "offset_mapping": PAIRS})["rationale"]
    assert read.tolist() == [
        [255, 0, 1, 255, 255, 255, 255],
        [255, 1, 255, 255, 255, 255, 255],
        [255, 255, 1, 1, 255, 255, 255],
    ]


@pytest.mark.parametrize("given", [list, lambda x: [each.tolist() for each in x]])
def test_rationales_of_chunks_have_a_value_per_token(given):
    ids = torch.ones(2, 3, 4, dtype=torch.long)
    marks = torch.tensor([[[0, 1, 0, 0]] * 2, [[0, 0, 1, 0]] * 2])
    found = token_rationale([*given(marks), None], {"input_ids": ids.new_ones(3, 3, 4)})
    assert found[:2, :2].tolist() == marks.tolist()
    assert (found[:, 2] == 255).all()
    assert (found[2] == 255).all()
    with pytest.raises(ValueError, match=r"a value per token, \[3, 4\] here, not \[2\]"):
        token_rationale([[0, 1], [0, 1]], {"input_ids": ids})
