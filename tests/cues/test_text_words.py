"""Which words of texts are punctuation or markers, by three kinds of tokenizers."""

import numpy as np
import pytest

from lrptrain.cues.text_words import is_punctuation, markers_of, outside_markers, words_among


def found(names, content=None):
    """The words of a text whose tokens have the numbers 0, 1, 2 ...; the content is all of it unless it is said."""
    content = [True] * len(names) if content is None else content
    return words_among(np.where(content, np.arange(len(names)), -1), lambda ids: [names[i] for i in ids])


@pytest.mark.parametrize(
    ("text", "is_mark"),
    [("!", True), ("...", True), (":)", True), ("$", True), ("★", True), ("a!", False), ("7", False), ("", False)],
)  # fmt: skip
def test_punctuation(text, is_mark):
    assert is_punctuation(text) is is_mark


# As BERT cuts texts, without a word on spaces, and as GPT-2 does.
PIECES = [
    ("see http : / / t . co / ab ##c now", [("link", "http: / / t. co / abc")]),
    ("Ġsee Ġhttp :// t . co /ab c Ġnow", [("link", "http://t.co/abc")]),
    (
        "@ bob _ k is here @ work # fail",
        [("mention", "@ bob _ k"), ("mention", "@ work"), ("hashtag", "# fail")],
    ),
    ("mail bob @ mail . com today", [("address", "bob @ mail. com")]),
    ("on twitpic . com / 2y ##1 today", [("domain", "twitpic. com / 2y1")]),
    ("from 12 / 05 / 2009 to 7 . 30", [("date", "12 / 05 / 2009"), ("number", "7"), ("number", "30")]),
    ("b ##4 we had 25 % of $ 30 in 1984", [("number", "25%"), ("number", "$ 30"), ("date", "1984")]),
    ("19 ##8 ##4", [("date", "1984")]),
    ("on 12 march : or March 12 , 2020", [("date", "12 march"), ("date", "March 12, 2020")]),
    (
        "3rd of Sept . 1999 , dec 7 , June 2001",
        [("date", "3rd of Sept. 1999"), ("date", "dec 7"), ("date", "June 2001")],
    ),
    ("in 1812 , 2024 % and 1984.5", [("number", "1812"), ("number", "2024%"), ("number", "1984.5")]),
    ("we march on , may 100 come", [("number", "100")]),
    ("nothing of the kind . ok ?", []),
    ("", []),
]


@pytest.mark.parametrize(("names", "wanted"), PIECES)
def test_markers(names, wanted):
    words = found(names.split())
    markers = markers_of(words)
    assert [(marker.kind, marker.text) for marker in markers] == wanted
    inside = {i for marker in markers for i in range(*marker.span)}
    assert [word.span[0] for word in outside_markers(words)] == [
        word.span[0] for word in words if word.span[0] not in inside
    ]


def test_a_marker_is_made_of_neighbours():
    # The piece in between is no content, such as what a rationale ignores: "@" and "bob" are two words.
    assert markers_of(found(["@", "x", "bob"], content=[True, False, True])) == []
    (marker,) = markers_of(found(["a", "@", "bo", "##b"]))
    assert marker.span == (1, 4)
