"""Swaps of what texts have as a whole: what is refused, and what a model is given."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from word_pieces import ids_of, word_pieces

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.parts import TEXT_PROPERTIES, InputPart
from lrptrain.guidance.named_parts import NamedParts, swap_of
from lrptrain.guidance.objective import Objective
from lrptrain.guidance.swaps import SWAPS
from lrptrain.guidance.text_swaps import TextReader, text_swap
from lrptrain.cues.text_form import TextForm

TOKENIZER = word_pieces(model_max_length=32)
EACH_OTHER = torch.tensor([1, 0])


def reader(tokenizer=TOKENIZER):
    made = TextReader()
    made.form = TextForm(tokenizer, most=32)
    return made


def texts(*written):
    rows = [ids_of(text) for text in written]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def all_evidence(batch):
    return torch.where(batch["attention_mask"] != 0, 1, IGNORED)


def read(ids, mask):
    return [TOKENIZER.decode(row[kept != 0][1:-1].tolist()) for row, kept in zip(ids, mask, strict=True)]


def test_a_text_and_its_mask_change_together():
    batch = texts("a b c d", "x y")
    swapped = text_swap("length", reader(None))(
        batch["input_ids"], all_evidence(batch), donors=EACH_OTHER, arguments={**batch, "labels": torch.zeros(2)}
    )
    assert read(swapped.explained, swapped.arguments["attention_mask"]) == ["a d", "x y x y"]
    assert swapped.rows.tolist() == [True, True]
    assert set(swapped.arguments) == {"attention_mask"}
    rows = torch.tensor([1])
    assert torch.equal(swapped.arguments_of(rows)["attention_mask"], swapped.arguments["attention_mask"][1:])


def test_donors_are_drawn_among_the_texts_that_take_part():
    batch = texts("a b c d", "x y", "u", "v w u v w")
    annotation = all_evidence(batch)
    annotation[2] = IGNORED
    lengths = batch["attention_mask"].sum(1)
    seen = set()
    for seed in range(40):
        swap = text_swap("length", reader())
        swapped = swap(batch["input_ids"], annotation, generator=torch.Generator().manual_seed(seed), arguments=batch)
        assert swapped.rows.tolist() == [True, True, False, True]
        assert torch.equal(swapped.explained[2, :3], batch["input_ids"][2, :3])
        taken = swapped.arguments["attention_mask"].sum(1)[[0, 1, 3]]
        assert sorted(taken.tolist()) == sorted(lengths[[0, 1, 3]].tolist())
        seen.add(tuple(taken.tolist()))
    assert len(seen) == 6  # every order, that of the batch too
    alone = torch.full_like(annotation, IGNORED)
    alone[0] = 1
    assert not text_swap("length", reader())(batch["input_ids"], alone, arguments=batch).rows.any()


@pytest.mark.parametrize("kind", TEXT_PROPERTIES)
def test_what_cannot_be_rewritten_is_refused(kind):
    batch = texts("a b c d", "x y")
    swap = text_swap(kind, reader())
    given = (batch["input_ids"], all_evidence(batch))
    with pytest.raises(
        ValueError, match=f"a swap of {kind} rewrites texts, .* has to give the model an argument attention_mask"
    ):
        swap(*given, arguments={"input_ids": batch["input_ids"]})
    with pytest.raises(ValueError, match="has to give the model an argument attention_mask"):
        swap(*given, arguments={**batch, "attention_mask": torch.ones(2, 1, 4, 4)})
    with pytest.raises(ValueError, match="and position_ids goes by the places of their tokens"):
        swap(*given, arguments={**batch, "position_ids": batch["input_ids"] + 0})
    with pytest.raises(ValueError, match="and position_ids goes by the places of their tokens"):
        swap(*given, arguments={**batch, "position_ids": torch.arange(6)[None]})
    lengths = batch["attention_mask"].sum(1)
    with pytest.raises(ValueError, match="and lengths goes by the places of their tokens"):
        swap(*given, arguments={**batch, "lengths": lengths.float()})
    # Soft labels may have as many columns as texts have tokens.
    swap(*given, arguments={**batch, "labels": torch.ones(2, 6)})
    with pytest.raises(ValueError, match=r"by their token ids, and the model is given \(2, 6, 3\) of torch.float32"):
        swap(torch.ones(2, 6, 3), given[1], arguments=batch)


@pytest.mark.parametrize("kind", [kind for kind in TEXT_PROPERTIES if kind != "length"])
def test_who_reads_texts_needs_a_tokenizer(kind):
    batch = texts("a b c d", "x y")
    with pytest.raises(ValueError, match=f"a swap of {kind} reads the texts: pass tokenizer="):
        text_swap(kind, reader(None))(batch["input_ids"], all_evidence(batch), arguments=batch)


@pytest.mark.parametrize("kind", TEXT_PROPERTIES)
def test_pairs_are_refused(kind):
    batch = texts("is it", "why so")
    batch["input_ids"][:, 2] = 3  # the separator that all texts end with
    with pytest.raises(ValueError, match=f"swap of {kind} is one of single texts, and these are pairs"):
        text_swap(kind, reader())(batch["input_ids"], all_evidence(batch), arguments=batch)
    typed = texts("is it", "why so")
    typed["token_type_ids"] = (torch.arange(typed["input_ids"].shape[1]) > 3).long().expand(2, -1)
    with pytest.raises(ValueError, match="these are pairs"):
        text_swap(kind, reader())(typed["input_ids"], all_evidence(typed), arguments=typed)


def test_a_full_stop_is_no_separator_where_it_is_known_what_one_is():
    batch = texts("a . b .", "x . y .")
    cut = {name: values[:, 1:-1] for name, values in batch.items()}  # as tokenizers without special tokens have them
    known = reader()
    known.form = TextForm(TOKENIZER, ends=frozenset({2, 3}))
    assert text_swap("punctuation", known)(cut["input_ids"], all_evidence(cut), arguments=cut).rows.all()
    # Where nobody knows, the first batch tells for all.
    unknown = reader()
    swap = text_swap("length", unknown)
    assert swap(batch["input_ids"], all_evidence(batch), arguments=batch).rows.all()
    assert swap(cut["input_ids"], all_evidence(cut), arguments=cut).rows.all()
    # Of another training nothing is known again.
    unknown.begin(TextForm())
    with pytest.raises(ValueError, match="these are pairs"):
        swap(cut["input_ids"], all_evidence(cut), arguments=cut)


def test_capitals_that_the_tokenizer_does_not_read_are_refused():
    batch = texts("a b", "x y z")
    lossy = word_pieces(lowercase=True)
    with pytest.raises(ValueError, match="reads capitals as small letters"):
        text_swap("case", reader(lossy))(batch["input_ids"], all_evidence(batch), arguments=batch)

    # One that knows whole words alone, and neither "a" nor "A".
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "so": 4, "SO": 5, "it": 6, "IT": 7}
    whole_words = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    whole_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    knowing = PreTrainedTokenizerFast(tokenizer_object=whole_words, pad_token="[PAD]", unk_token="[UNK]")
    ids = torch.tensor([[2, 4, 6, 3], [2, 5, 7, 3]])
    written = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    swapped = text_swap("case", reader(knowing))(ids, torch.ones(2, 4), donors=EACH_OTHER, arguments=written)
    assert swapped.explained.tolist() == [[2, 5, 7, 3], [2, 4, 6, 3]]

    class Names:
        convert_ids_to_tokens = TOKENIZER.convert_ids_to_tokens

    with pytest.raises(ValueError, match="a swap of case writes texts anew, and Names cannot"):
        text_swap("case", reader(Names()))(batch["input_ids"], all_evidence(batch), arguments=batch)
    assert text_swap("markers", reader(Names()))(batch["input_ids"], all_evidence(batch), arguments=batch).rows.all()


def test_a_text_without_content_takes_no_part():
    batch = texts("a b c", "", "x")
    swap = text_swap("length", reader())
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        swapped = swap(batch["input_ids"], torch.ones(3, 5), generator=generator, arguments=batch)
        assert swapped.rows.tolist() == [True, False, True]
        assert swapped.arguments["attention_mask"][1].tolist() == batch["attention_mask"][1].tolist()


def test_what_findings_name_is_rewritten_after_words_are_swapped():
    word = InputPart("words", "the token 'x'", words=((ids_of("x")[1],),))
    named = NamedParts([InputPart("length", "the length of texts"), word, InputPart("punctuation", "punctuation")])
    named.reader = reader()
    batch = texts("x b c !", "u v")
    annotation = named.annotated(batch)["rationale"]
    swap = swap_of(named)
    assert swap.rewrites
    assert swap.name == "findings"
    swapped = swap(
        batch["input_ids"],
        annotation,
        generator=torch.Generator().manual_seed(0),
        without_evidence=True,
        donors=EACH_OTHER,
        arguments=batch,
    )
    first, second = read(swapped.explained, swapped.arguments["attention_mask"])
    # The first text loses its x to the second one, is cut to its length, and loses its mark to it, too.
    assert first in ("u", "v")
    assert {*second.replace("!", "").split()} in ({"x", "v"}, {"u", "x"})
    assert second.count("!") == 1
    # Nothing is rewritten where no finding names a property of texts.
    assert not swap_of(NamedParts([word])).rewrites


def test_a_part_of_texts_is_none_of_images():
    named = NamedParts([InputPart("length", "the length of texts")])
    with pytest.raises(ValueError, match="the length of texts is a part of texts"):
        named.annotated({"image": torch.ones(2, 3, 8, 8)})


def test_nothing_else_fits_rewritten_texts():
    swap = text_swap("length", reader())
    assert Objective({}, swapped_share=1.0, swap=swap).names == ["swap"]
    assert Objective({"consistency": 1.0}, swap=swap).names == ["consistency"]
    for weights, share in (
        ({"consistency": 1.0}, 1.0),
        ({"energy": 1.0}, 1.0),
        ({"consistency": 1.0, "energy": 1.0}, None),
    ):
        with pytest.raises(ValueError, match="swap='length' rewrites texts, so that nothing else fits them"):
            Objective(weights, swapped_share=share, swap=swap)
    with pytest.raises(ValueError, match="margin is one around the evidence, which swap='length' does not go by"):
        Objective({}, swapped_share=1.0, swap=swap, margin=2)
    with pytest.raises(ValueError, match="swap='length' says what swap and consistency swap, and energy swaps nothing"):
        Objective({"energy": 1.0}, swap=swap)
    assert not any(each.rewrites for each in SWAPS.values())
