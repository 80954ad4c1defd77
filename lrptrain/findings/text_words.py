"""The words of an explained text: which of them people marked, and how much relevance some of them have."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from lrptrain.findings.evaluation import ExplainedSample
from lrptrain.intervention.text_words import NameTokens, TextWord, words_among
from lrptrain.intervention.words import Span


def words_of(explained: ExplainedSample, name_tokens: NameTokens) -> list[TextWord]:
    """Return the words among the content tokens of a text.

    Args:
        explained: A text.
        name_tokens: Brings token ids to token strings.
    """
    return words_among(_content_ids(explained), name_tokens)


def unmarked(words: Sequence[TextWord], explained: ExplainedSample) -> list[TextWord]:
    """Return the words that no rationale names: what people marked is evidence, of whatever kind its words are."""
    if explained.annotated is None:
        return list(words)
    return [word for word in words if not explained.annotated[slice(*word.span)].any()]


def relevance_of(explained: ExplainedSample, spans: Sequence[Span]) -> tuple[float, float]:
    """Return the share of a text's positive relevance on some spans, and that of a uniform map."""
    content = _content_ids(explained) >= 0
    relevance = explained.positive_relevance * content
    inside = np.zeros(len(content), dtype=bool)
    for span in spans:
        inside[slice(*span)] = True
    return float(relevance[inside].sum() / max(relevance.sum(), 1e-12)), float(
        (inside & content).sum() / max(content.sum(), 1)
    )


def _content_ids(explained: ExplainedSample) -> Int[np.ndarray, " tokens"]:
    assert explained.content_ids is not None
    return explained.content_ids
