"""Texts at other lengths, beside texts written by hand, and who is moved by them."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.lengths import at_lengths, inner_tokens

START, END, PAD = 101, 102, 9


def batch(texts, left=False):
    """Texts of numbers between their special tokens, padded with `PAD`."""
    width = max(map(len, texts)) + 2
    rows = [[START, *text, END] for text in texts]
    padding = [[0] * (width - len(row)) for row in rows]
    masks = [[1] * len(row) for row in rows]
    ids = [[PAD] * len(zeros) for zeros in padding]
    joined = [
        [(b + a) if left else (a + b) for a, b in zip(x, y, strict=True)] for x, y in ((rows, ids), (masks, padding))
    ]
    return {"input_ids": torch.tensor(joined[0]), "attention_mask": torch.tensor(joined[1])}


def words(made):
    return [row[mask == 1].tolist() for row, mask in zip(made["input_ids"], made["attention_mask"], strict=True)]


def lengthened(text, kept, length):
    """By hand: the ends of the text, and in the middle the same words again."""
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    middle = (head + tail) * length
    return [START, *head, *middle[len(head) : length - len(tail)], *tail, END]


@pytest.mark.parametrize("left", [False, True])
def test_both_texts_are_made_of_the_same_words_and_begin_and_end_as_before(left):
    texts = [[1, 2, 3, 4, 5, 6, 7], [8], [11, 12, 13], [21, 22, 23, 24, 25]]
    lengths = [[4, 3, 3, 9], [6, 1, 5, 5]]
    first, second = at_lengths(batch(texts, left), [torch.tensor(each) for each in lengths])
    kept = [4, 1, 3, 5]
    for made, wanted in zip((first, second), lengths, strict=True):
        assert words(made) == [lengthened(*each) for each in zip(texts, kept, wanted, strict=True)]
        assert made["input_ids"].shape[1] == max(wanted) + 2
        padded = made["attention_mask"] == 0
        assert (made["input_ids"][padded] == PAD).all()
        ends = made["attention_mask"][:, -1 if left else 0]
        assert ends.all()  # the padding is on the side on which it was
    assert words(first)[0] == [START, 1, 2, 6, 7, END]
    assert words(second)[0] == [START, 1, 2, 6, 7, 6, 7, END]
    assert words(second)[2] == [START, 11, 12, 13, 11, 13, END]


def test_a_text_at_its_own_length_is_itself_with_its_types():
    given = batch([[1, 2, 3], [4, 5, 6]])
    types = torch.zeros_like(given["input_ids"])
    (same,) = at_lengths(given | {"token_type_ids": types, "rationale": types}, [torch.tensor([3, 3])])
    assert same.keys() == {"input_ids", "attention_mask", "token_type_ids"}
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(same[name], given[name])
    assert inner_tokens(given | {"rationale": types + 255}).sum() == 6  # what people marked does not make it shorter


class Reader(torch.nn.Module):
    """Reads the number of words, or whether large ones are among them."""

    def __init__(self, by_length):
        super().__init__()
        self.by_length = by_length

    def forward(self, input_ids, attention_mask):
        is_word = attention_mask.bool() & (input_ids < START)
        score = is_word.sum(1) - 6.0 if self.by_length else (is_word & (input_ids >= 50)).sum(1) / is_word.sum(1) - 0.5
        return torch.stack([-9 * score, 9 * score], 1)


def texts(count=40):
    """Short texts of small numbers, long ones of large ones: length and words both tell the class."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    sizes = [int(rng.integers(8, 11) if label else rng.integers(2, 5)) for label in labels]
    found = [
        batch([rng.integers(50 * label + 1, 50 * label + 50, n).tolist()])
        for label, n in zip(labels, sizes, strict=True)
    ]
    return [Sample(i, int(labels[i]), {name: x[0] for name, x in each.items()}) for i, each in enumerate(found)]


def falls(model, samples):
    known = torch.cat([model(**{name: x[None] for name, x in each.tensors.items()}) for each in samples])
    rows = np.arange(len(samples))
    return effects(
        model, samples, rows=rows, computed_rows=rows, region=Region("length"), grid=None,
        probabilities=known.softmax(1).numpy(), config=InterventionConfig(batch_size=7),
    )  # fmt: skip


def test_who_reads_length_is_moved_and_who_reads_words_is_not():
    change, control = falls(Reader(by_length=True), texts())
    assert change.min() > 0.9
    assert abs(control).max() < 0.1
    change, control = falls(Reader(by_length=False), texts())
    assert abs(change).max() < 1e-6
    assert abs(control).max() < 1e-6


def test_an_empty_text_is_not_tested():
    samples = texts()
    empty = {name: x[0] for name, x in batch([[]]).items()}
    change, control = falls(Reader(by_length=True), [Sample(0, 0, empty), *samples[1:]])
    assert np.flatnonzero(np.isnan(change)).tolist() == np.flatnonzero(np.isnan(control)).tolist() == [0]
    assert strategy_of(Region("length"), None, InterventionConfig("fill")) == "length"


@pytest.mark.parametrize("mask", [None, torch.ones(5, 5)])
def test_texts_need_a_mask_that_tells_their_padding(mask):
    odd = {"input_ids": torch.arange(5)} | ({} if mask is None else {"attention_mask": mask})
    bare = [Sample(i, i % 2, odd) for i in range(40)]
    with pytest.raises(ValueError, match="without an attention_mask"):
        effects(
            Reader(by_length=True), bare, rows=np.arange(40), computed_rows=np.arange(40), region=Region("length"),
            grid=None, probabilities=np.eye(2)[np.arange(40) % 2], config=InterventionConfig(),
        )  # fmt: skip
