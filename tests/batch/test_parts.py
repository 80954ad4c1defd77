"""Parts of inputs that findings name: what they are on paper."""

import json
from dataclasses import replace

import pytest

from lrptrain.batch.parts import InputPart, MarkPicture

MARK = MarkPicture((0.5, -1.0), (0.25,), 2, 1, 2, (-1, -1, 5, 5), (16, 24))
PARTS = [
    InputPart("patches", "the corner", (4, 6), (0, 23)),
    InputPart("mark", "a dot", mark=MARK),
    InputPart("words", "the word", words=((7,), (8, 9))),
    InputPart("place", "the last token", place=-1),
    InputPart("statistics", "colour"),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.kind)
def test_a_part_survives_json(part):
    assert InputPart.from_dict(json.loads(json.dumps(part.to_dict()))) == part


def test_what_is_within_another_part_does_not_depend_on_its_name():
    corner, _, words, last, colour = PARTS
    smaller = replace(corner, name="the image's top left", patches=(0,))
    assert smaller.lies_within(corner)
    assert not corner.lies_within(smaller)
    assert not replace(smaller, grid=(6, 4)).lies_within(corner)
    assert replace(words, words=((8, 9),)).lies_within(words)
    assert not replace(words, words=((8,),)).lies_within(words)
    assert not replace(last, place=0).lies_within(last)
    assert not replace(colour, kind="detail").lies_within(colour)
    assert not replace(PARTS[1], mark=replace(MARK, values=(0.5, 1.0))).lies_within(PARTS[1])
