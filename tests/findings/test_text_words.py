"""The words of explained texts, by three kinds of tokenizers."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.findings.text_words import relevance_of, unmarked, words_of


def explained(names, content=None, annotated=None, relevance=None):
    """A text whose tokens have the numbers 0, 1, 2 ...; the content is all of it unless it is said."""
    content = [True] * len(names) if content is None else content
    return ExplainedSample(
        Sample("s", 0, {}), 0, np.array([1.0, 0.0]),
        {"label": torch.ones(len(names)) if relevance is None else torch.tensor(relevance)}, None, 2, np.nan, {},
        annotated=None if annotated is None else np.array(annotated),
        content_ids=np.where(content, np.arange(len(names)), -1),
    )  # fmt: skip


def found(names, **more):
    return words_of(explained(names, **more), lambda ids: [names[i] for i in ids])


def test_words_are_joined_from_their_pieces_and_end_where_the_content_does():
    words = found(["[CLS]", "un", "##seen", "film", ".", "[SEP]"], content=[False, True, True, True, True, False])
    assert [(word.text, word.ids, word.span) for word in words] == [
        ("unseen", (1, 2), (1, 3)), ("film", (3,), (3, 4)), (".", (4,), (4, 5)),
    ]  # fmt: skip
    apart = found(["see", "[X]", "##ing"], content=[True, False, True])
    assert [word.span for word in apart] == [(0, 1), (2, 3)]
    bytes_too = found(["Ġin", "gr", "id", "Ġsaw", "!"])
    assert [word.text for word in bytes_too] == ["ingrid", "saw", "!"]


def test_what_people_marked_is_left_out_and_relevance_is_that_of_the_content():
    names = ["good", "fi", "##lm", "!"]
    given = explained(names, annotated=[False, False, True, False], relevance=[1.0, 2.0, -1.0, 1.0])
    words = words_of(given, lambda ids: [names[i] for i in ids])
    assert [word.text for word in unmarked(words, given)] == ["good", "!"]
    assert unmarked(words, explained(names)) == words
    assert relevance_of(given, [(1, 3)]) == (0.5, 0.5)
    assert relevance_of(given, [(0, 1), (3, 4)]) == (0.5, 0.5)
    partly = explained(names, content=[True, True, True, False], relevance=[1.0, 2.0, -1.0, 9.0])
    assert relevance_of(partly, [(0, 1)]) == pytest.approx((1 / 3, 1 / 3))
