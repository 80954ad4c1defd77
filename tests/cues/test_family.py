import pytest
from plain_texts import bert, roberta

from lrptrain.cues.family import FAMILIES, LARGEST, Family
from lrptrain.cues.texts import parts_of

TEXT = "[UNK] [UNK] On 2019-01-02 , The the the cat4 un ##der ##sees $ 5 ! ! @ bob and www . cats . com ."
FOUND = {
    "numbers": "2019-01-02 cat4 5",
    "punctuation": ", ! ! .",
    "dates and years": "2019-01-02",
    "links, mentions, tags and dates": "2019-01-02 $ 5 @ bob www . cats . com",
    "rare or misspelt words": "un ##der ##sees",
    "capitalised words": "On The",
    "repeated words": "The the the",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_found_among_word_pieces(family):
    writer = bert()
    batch = writer.batch(TEXT)
    inside = Family.of(family, "unreviewed", writer.language).locate(batch)[0]
    assert writer.read({"input_ids": batch["input_ids"][0][inside][None]}) == [FOUND[family]]


@pytest.mark.parametrize(
    ("family", "found"),
    [
        ("dates and years", "Ġ20 19"),
        ("numbers", "Ġ20 19 Ġ7"),
        ("punctuation", "! ĠâĢĵ Ġ! !"),
        ("rare or misspelt words", "Ġthe re"),
        ("capitalised words", "ĠI"),
        ("repeated words", "so Ġso Ġno Ġno"),
    ],
)
def test_a_family_is_found_among_bytes(family, found):
    writer = roberta()
    batch = writer.batch("so Ġso Ġtrue ! Ġ20 19 Ġ7 ĠâĢĵ ĠI Ġthe re Ġno Ġno Ġ! !")
    inside = Family.of(family, "unreviewed", writer.language).locate(batch)[0]
    assert writer.read({"input_ids": batch["input_ids"][0][inside][None]}) == [found]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_takes_the_family_of_its_source(family):
    writer = bert()
    batch = writer.batch("a b c", TEXT)
    cue = Family.of(family, "unreviewed", writer.language)
    given, left = writer.read(cue.exchange(batch, {name: rows.flip(0) for name, rows in batch.items()}))
    assert sorted(given.split()) == sorted(f"[CLS] a b c [SEP] {FOUND[family]}".split())
    assert sorted(f"{left} {FOUND[family]}".split()) == sorted(f"[CLS] {TEXT} [SEP]".split())


def test_a_family_says_what_it_is():
    language = bert().language
    cue = Family.of("numbers", "shortcut", language)
    assert cue.to_dict() == {
        "kind": "family",
        "name": "the numbers",
        "role": "shortcut",
        "where": "text",
        "family": "numbers",
    }
    assert cue == Family.of("numbers", "shortcut", roberta().language)
    assert cue != Family.of("numbers", "unreviewed", language)


def test_dates_are_a_part_of_numbers_with_their_months_and_stand_in_their_order():
    writer = bert()
    batch = writer.batch("5 of 12 march in 30")
    numbers = Family.of("numbers", "shortcut", writer.language, "outside")
    assert numbers.children() == [Family.of("dates and years", "shortcut", writer.language, "outside")]
    assert numbers.children()[0].children() == []
    (parts,) = parts_of(batch, writer.language)
    assert numbers.spans(parts[0].words) == [(1, 2), (3, 5), (6, 7)]
    assert [each for each in FAMILIES if each not in LARGEST] == ["dates and years"]
