"""Batches of texts that take their length, punctuation, markers or case from each other, beside texts by hand."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from word_pieces import ids_of, word_pieces

from lrptrain.batch.parts import TEXT_PROPERTIES
from lrptrain.intervention.rewriting import rewritten, widened

CASED = word_pieces(model_max_length=32)
EACH_OTHER = torch.tensor([1, 0])
ITSELF = torch.tensor([0, 1])


def batch_of(*texts, left=False, types=False):
    """Texts as a batch, padded on the right or the left."""
    rows = [ids_of(text) for text in texts]
    width = max(map(len, rows))
    padded = [[0] * (width - len(row)) + row if left else row + [0] * (width - len(row)) for row in rows]
    ids = torch.tensor(padded)
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    return batch | ({"token_type_ids": torch.zeros_like(ids)} if types else {})


def read(batch):
    """The texts of a batch, without their special tokens."""
    return [
        CASED.decode(row[mask != 0][1:-1].tolist())
        for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize(
    ("kind", "texts", "wanted"),
    [
        # Of the same words as many as the shorter one has: its first and its last ones.
        ("length", ["a b c d e f", "x y"], ["a f", "x y x y x y"]),
        ("punctuation", ["so it goes ! ! !", "no . way"], ["so it. goes", "no way!!!"]),
        ("markers", ["see 1984 now", "go to # home"], ["see now # home", "go 1984 to"]),
        ("case", ["so it goes", "NO WAY"], ["SO IT GOES", "no way"]),
    ],
)  # fmt: skip
def test_texts_take_a_property_of_each_other(kind, texts, wanted, left, types):
    batch = batch_of(*texts, left=left, types=types)
    changed = rewritten(kind, batch, EACH_OTHER, CASED)
    assert [text.replace(" ", "") for text in read(changed)] == [text.replace(" ", "") for text in wanted]
    assert changed.keys() == batch.keys()
    width = max(batch["input_ids"].shape[1], int(changed["attention_mask"].sum(1).max()))
    assert {values.shape for values in changed.values()} == {(2, width)}
    assert {name: values.dtype for name, values in changed.items()} == {
        name: values.dtype for name, values in batch.items()
    }
    # Padding stays on its side.
    shorter = changed["attention_mask"].sum(1).argmin()
    assert bool(changed["attention_mask"][shorter, 0] == 0) == left


@pytest.mark.parametrize("kind", TEXT_PROPERTIES)
def test_who_is_its_own_donor_stays_as_it_is(kind):
    batch = batch_of("See 1984, it is FINE !", "no # way")
    assert same(rewritten(kind, batch, ITSELF, CASED), batch)
    # Also beside a text that changes.
    changed = rewritten(kind, batch_of("a ! 19 B", "XY", "so it goes"), torch.tensor([1, 0, 2]), CASED)
    assert read(changed)[2] == "so it goes"


def test_the_length_needs_no_tokenizer():
    assert read(rewritten("length", batch_of("a b c", "x"), EACH_OTHER, None)) == ["a", "x x x"]


def test_a_text_of_which_the_tokenizer_does_not_give_back_the_ids_keeps_its_case_and_lends_it():
    batch = batch_of("so it", "NO WAY")
    batch["input_ids"][0, 1] = 1  # [UNK]
    changed = rewritten("case", batch, EACH_OTHER, CASED)
    assert torch.equal(changed["input_ids"][0], batch["input_ids"][0])
    assert read(changed)[1] == "No way"  # [UNK] is read as a capital


def test_a_text_that_becomes_too_long_is_cut():
    batch = batch_of("see 1984 now", "go to # home")
    shortest = word_pieces(model_max_length=batch["input_ids"].shape[1])
    assert read(rewritten("markers", batch, EACH_OTHER, shortest))[0] == "see now # hom"


def test_what_is_longer_in_capitals_makes_the_batch_wider():
    # "ab" is one piece in small letters, and two in capitals.
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ab", "A", "##B", "C"]
    words = Tokenizer(models.WordPiece({each: i for i, each in enumerate(vocabulary)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece(cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    ids = torch.tensor([[2, 4, 4, 3], [2, 5, 6, 3]])
    changed = rewritten("case", {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, EACH_OTHER, tokenizer)
    assert changed["input_ids"].tolist() == [[2, 5, 6, 5, 6, 3], [2, 4, 3, 0, 0, 0]]
    assert changed["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("kind", TEXT_PROPERTIES)
def test_pairs_are_refused(kind):
    batch = batch_of("is it", "why so")
    batch["input_ids"][:, 2] = 3  # the separator that all texts end with
    with pytest.raises(ValueError, match=f"swap of {kind} is one of single texts, and these are pairs"):
        rewritten(kind, batch, EACH_OTHER, CASED)
    typed = batch_of("is it", "why so", types=True)
    typed["token_type_ids"][:, 3:] = 1
    with pytest.raises(ValueError, match="pairs"):
        rewritten(kind, typed, EACH_OTHER, CASED)


@pytest.mark.parametrize("left", [False, True])
def test_texts_are_widened_on_the_side_of_their_padding(left):
    batch = batch_of("a b", "c", left=left)
    wider = widened(batch, 7)
    assert wider["input_ids"].shape == (2, 7)
    assert read(wider) == read(batch)
    assert wider["input_ids"][0].tolist() == ([0, 0, 0, *ids_of("a b")] if left else [*ids_of("a b"), 0, 0, 0])
    assert same(widened(batch, 4), batch)
