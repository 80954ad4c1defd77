"""A few words of a text, around those that the model reads most."""

from collections.abc import Callable

import numpy as np

from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.render import join_words

WORDS_AROUND = 5
"""So many tokens stand on either side of the most relevant one: a choice, of how long a line is."""


def excerpt(explained: ExplainedSample, name_tokens: Callable[[list[int]], list[str]]) -> str:
    """Return the words around the most relevant token of a text, in quotation marks, with dots where it goes on.

    Args:
        explained: A text with its map.
        name_tokens: Brings token ids to token strings.
    """
    assert explained.content_ids is not None
    content = np.flatnonzero(explained.content_ids >= 0)
    if not len(content):
        return '""'
    peak = int(explained.positive_relevance[content].argmax())
    start = max(0, peak - WORDS_AROUND)
    stop = peak + WORDS_AROUND + 1
    tokens = name_tokens(explained.content_ids[content[start:stop]].tolist())
    alike = [True] * len(tokens)
    words = "".join(f"{' ' if word.space else ''}{word.text}" for word in join_words(tokens, alike, alike))
    return f'"{"... " if start else ""}{words}{" ..." if stop < len(content) else ""}"'
