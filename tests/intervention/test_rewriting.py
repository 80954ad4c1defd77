"""Batches of texts that take their length, punctuation, markers or case from each other, beside texts by hand."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from word_pieces import ids_of, word_pieces

from lrptrain.batch.parts import TEXT_PROPERTIES
from lrptrain.intervention.rewriting import rewritten, widened
from lrptrain.cues.text_form import Padding, TextForm

CASED = word_pieces()
FORM = TextForm(CASED, most=32)
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
    changed = rewritten(kind, batch, EACH_OTHER, FORM)
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
    assert same(rewritten(kind, batch, ITSELF, FORM), batch)
    # Also beside a text that changes.
    changed = rewritten(kind, batch_of("a ! 19 B", "XY", "so it goes"), torch.tensor([1, 0, 2]), FORM)
    assert read(changed)[2] == "so it goes"


def test_the_length_needs_no_tokenizer():
    assert read(rewritten("length", batch_of("a b c", "x"), EACH_OTHER, TextForm())) == ["a", "x x x"]


def test_a_text_of_which_the_tokenizer_does_not_give_back_the_ids_keeps_its_case_and_lends_it():
    batch = batch_of("so it", "NO WAY")
    batch["input_ids"][0, 1] = 1  # [UNK]
    changed = rewritten("case", batch, EACH_OTHER, FORM)
    assert torch.equal(changed["input_ids"][0], batch["input_ids"][0])
    assert read(changed)[1] == "No way"  # [UNK] is read as a capital


def test_a_text_that_becomes_too_long_is_cut():
    batch = batch_of("see 1984 now", "go to # home")
    assert read(rewritten("markers", batch, EACH_OTHER, TextForm(CASED, most=0)))[0] == "see now # hom"


def test_what_is_longer_in_capitals_makes_the_batch_wider():
    # "ab" is one piece in small letters, and two in capitals.
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ab", "A", "##B", "C"]
    words = Tokenizer(models.WordPiece({each: i for i, each in enumerate(vocabulary)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece(cleanup=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    ids = torch.tensor([[2, 4, 4, 3], [2, 5, 6, 3]])
    changed = rewritten(
        "case", {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, EACH_OTHER, TextForm(tokenizer, most=16)
    )
    assert changed["input_ids"].tolist() == [[2, 5, 6, 5, 6, 3], [2, 4, 3, 0, 0, 0]]
    assert changed["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("left", [False, True])
def test_texts_are_widened_on_the_side_of_their_padding(left):
    batch = batch_of("a b", "c", left=left)
    wider = widened(batch, 7, Padding(0, left))
    assert wider["input_ids"].shape == (2, 7)
    assert read(wider) == read(batch)
    assert wider["input_ids"][0].tolist() == ([0, 0, 0, *ids_of("a b")] if left else [*ids_of("a b"), 0, 0, 0])
    assert same(widened(batch, 4, Padding(0, left)), batch)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kind", TEXT_PROPERTIES)
def test_a_batch_without_padding_is_filled_up_as_the_model_wants_it(kind, left):
    batch = batch_of("A ! 1 b", "c d e f")  # equally long
    changed = rewritten(kind, batch, EACH_OTHER, TextForm(CASED, Padding(77, left), most=32))
    filled = changed["input_ids"][changed["attention_mask"] == 0]
    assert set(filled.tolist()) <= {77}
    if kind in ("punctuation", "markers"):
        assert len(filled)
        assert bool(changed["attention_mask"][0, 0]) != left


def test_equally_long_results_keep_the_padding_of_their_batch():
    batch = batch_of("a b c ! !", "x ! !", "u v ! !", left=True)
    batch["input_ids"][batch["attention_mask"] == 0] = 55
    changed = rewritten("length", batch, torch.tensor([1, 1, 1]), TextForm())
    assert changed["attention_mask"].sum(1).tolist() == [5, 5, 5]
    assert (changed["input_ids"][:, :2] == 55).all()


@pytest.mark.parametrize("ends", [frozenset(), frozenset({2, 3})])
def test_a_text_without_special_tokens_gives_its_last_mark(ends):
    rows = torch.tensor([ids_of("a b c !")[1:-1], ids_of("x y z .")[1:-1]])
    batch = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    changed = rewritten("punctuation", batch, EACH_OTHER, TextForm(CASED, ends=ends))
    assert [CASED.decode(row.tolist()) for row in changed["input_ids"]] == ["a b c .", "x y z !"]


def test_a_text_with_a_special_token_in_front_alone_keeps_it_there():
    """As those of Llama."""
    rows = torch.tensor([ids_of("a b c !")[:-1], ids_of(". x y z")[:-1]])
    batch = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    changed = rewritten("punctuation", batch, EACH_OTHER, TextForm(CASED, ends=frozenset({2})))
    assert changed["input_ids"][:, 0].tolist() == [2, 2]
    assert [CASED.decode(row[1:].tolist()) for row in changed["input_ids"]] == [". a b c", "x y z !"]
