"""A cue without another one."""

from dataclasses import replace

import torch
from plain_texts import bert

from lrptrain.cues.apart import Apart
from lrptrain.cues.family import Family
from lrptrain.cues.places import Place
from lrptrain.cues.texts import as_wide_as

TOP = Place("the top", "unreviewed", (0.0, 0.0, 0.5, 1.0))
LEFT = Place("the left", "shortcut", (0.0, 0.0, 1.0, 0.5))
OWN, THEIRS = {"image": torch.zeros(1, 1, 4, 4)}, {"image": torch.ones(1, 1, 4, 4)}


def test_what_is_put_back_is_as_it_was():
    apart = Apart.of(TOP, LEFT)
    assert apart.exchange(OWN, THEIRS)["image"][0, 0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0] * 4, [0] * 4]
    assert (apart.name, apart.role) == ("the top without the left", "unreviewed")
    assert torch.equal(Apart.of(TOP, TOP).exchange(OWN, THEIRS)["image"], OWN["image"])


def test_of_texts_that_become_longer_something_is_put_back_too():
    writer = bert()
    writer.language = replace(writer.language, form=replace(writer.language.form, most=20))
    batch = writer.batch("a b c d !", "1 2 3 4 e")
    numbers, marks = (Family.of(name, "unreviewed", writer.language) for name in ("numbers", "punctuation"))
    changed = Apart.of(numbers, marks).exchange(batch, {name: rows.flip(0) for name, rows in batch.items()})
    assert writer.read(changed) == ["[CLS] 1 2 3 4 a b c d ! [SEP]", "[CLS] e [SEP]"]


def test_texts_are_padded_to_those_that_have_become_longer():
    longer = {"input_ids": torch.tensor([[1, 2, 3, 4]])}
    short = {
        "input_ids": torch.tensor([[0, 5], [6, 7]]),
        "attention_mask": torch.tensor([[0, 1], [1, 1]]),
        "rationale": torch.tensor([[255, 1], [0, 1]]),
        "label": torch.tensor([1, 0]),
    }
    wide = as_wide_as(longer, short)
    assert wide["input_ids"].tolist() == [[0, 0, 0, 5], [0, 0, 6, 7]]  # padding stands on the left here
    assert wide["attention_mask"].tolist() == [[0, 0, 0, 1], [0, 0, 1, 1]]
    assert wide["rationale"].tolist() == [[255, 255, 255, 1], [255, 255, 0, 1]]
    assert wide["label"] is short["label"]
    assert as_wide_as(short, short)["input_ids"] is short["input_ids"]
    assert as_wide_as(OWN, THEIRS) == THEIRS
