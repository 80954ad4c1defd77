"""Cues that were written down are made again."""

import json
from dataclasses import replace

import pytest

from lrptrain.cues.beside import Beside
from lrptrain.cues.family import Family
from lrptrain.cues.kinds import restored
from lrptrain.cues.length import Length
from lrptrain.cues.mark import Mark
from lrptrain.cues.order import Order
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import places
from lrptrain.cues.row_count import RowCount
from lrptrain.cues.row_mark import RowMark
from lrptrain.cues.row_segment import AllRows
from lrptrain.cues.segment import ends_of
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual.band import bands
from lrptrain.cues.visual.colour import Colour
from lrptrain.cues.visual.framing import Framing
from tests.plain_texts import bert

LANGUAGE = bert().language
CUES = [
    *places("shortcut", "outside"),
    Surroundings(),
    Colour.of("evidence", "unreviewed"),
    Framing.of("image", "unreviewed"),
    Beside(),
    *bands("shortcut", 2, "outside"),
    Placement.of("size"),
    Mark("a mark", "shortcut", "outside", ((4, ((0.1, 0.2), (0.3, 0.4))),), (1.0, 2.0), (16, 16)),
    Family.of("numbers", "annotation", LANGUAGE, "outside"),
    Phrase("the phrase", "unreviewed", LANGUAGE, phrases=(((1, 2), (3,)),)),
    Length("the length", "unreviewed", LANGUAGE),
    Order("the order", "unreviewed", LANGUAGE),
    *ends_of("unreviewed", LANGUAGE),
    AllRows("the rows", "unreviewed"),
    *AllRows("everything outside the annotation", "shortcut", "outside").children(),
    RowCount(),
    RowMark("rows like row 3 of sample 7", "shortcut", "outside", (0.5, -1.25), 2.0),
]


@pytest.mark.parametrize("cue", CUES, ids=lambda cue: cue.name)
def test_after_json_it_is_the_same(cue):
    again = restored(json.loads(json.dumps(cue.to_dict())), lambda: LANGUAGE)
    assert again == cue
    assert hash(again) == hash(cue)
    assert again.declared("shortcut") == replace(cue, role="shortcut")


def test_a_role_of_an_earlier_version_is_refused():
    with pytest.raises(ValueError, match="a role is one of 'annotation', 'shortcut', 'unreviewed', not 'fault'"):
        CUES[0].declared("fault")  # type: ignore[arg-type]


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="no kind of cues is called 'shade' here"):
        restored({"kind": "shade", "name": "", "role": "unreviewed"}, lambda: LANGUAGE)
