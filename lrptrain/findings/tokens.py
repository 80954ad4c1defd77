"""Which tokens do too much: relevant wherever they stand, tied to a class, and outside of the rationales?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.extras import require
from lrptrain.findings.statistics import holm, share_test

LEAST_SAMPLES = 8
LEAST_CLASS_SHARE = 0.3
"""A token counts if it stands in this share of the texts of some predicted class: rarer words cannot carry a class."""
LEAST_RATIO = 2.0
"""It counts if it has this many times the relevance of the average token."""
ENDS = 2
"""So many positions at either end of a text are tested, too."""


@dataclass(frozen=True)
class ReadText:
    """One text and what was relevant in it; content tokens only.

    Attributes:
        ids: Token ids.
        shares: Share of the positive relevance on each token, summing to 1 (or 0 where none is positive).
        inside: Which tokens belong to the rationale; None without one.
        predicted: Predicted class.
    """

    ids: Int[np.ndarray, " tokens"]
    shares: Float[np.ndarray, " tokens"]
    inside: Bool[np.ndarray, " tokens"] | None
    predicted: int


class SuspiciousToken(NamedTuple):
    """A token, or a position, with too much relevance.

    Attributes:
        what: Token id, or a position: 0 is the first content token, -1 the last.
        is_position: Whether `what` is one.
        rows: The texts that it stands in.
        shares: Its share of the relevance there.
        expected: The share that it would have by its number.
        predicted: The predicted class that it goes with; -1 of a position.
        p_value: Corrected over all tokens and positions tested.
    """

    what: int
    is_position: bool
    rows: Int[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    predicted: int
    p_value: float


def suspicious_tokens(texts: Sequence[ReadText], confidence: float = 0.95) -> list[SuspiciousToken]:
    """Tokens whose relevance is high wherever they stand and whose presence goes with a predicted class.

    A token must stand in `LEAST_CLASS_SHARE` of the texts of some predicted class, outside of the rationales more
    often than inside, have more than its share of the relevance (sign-flip test) and go with the prediction (Fisher's
    exact test of its commonest class against the others); the larger of both p-values is corrected over all candidates
    (Holm). Positions at either end of the texts are tested for relevance alone.

    Args:
        texts: The sample.
        confidence: `1 - confidence` is the level.
    """
    candidates = [*_token_candidates(texts), *_position_candidates(texts)]
    p_values = holm([candidate.p_value for candidate in candidates])
    return [
        candidate._replace(p_value=float(p_value))
        for candidate, p_value in zip(candidates, p_values, strict=True)
        if p_value <= 1 - confidence and candidate.shares.mean() >= LEAST_RATIO * candidate.expected.mean()
    ]


def _token_candidates(texts: Sequence[ReadText]) -> Iterator[SuspiciousToken]:
    predicted = np.array([text.predicted for text in texts])
    sizes = {c: int((predicted == c).sum()) for c in np.unique(predicted)}
    for token, where in _occurrences([text.ids.tolist() for text in texts]).items():
        rows = np.array(sorted(where))
        counts = {c: int((predicted[rows] == c).sum()) for c in sizes}
        if len(rows) < LEAST_SAMPLES or max(counts[c] / sizes[c] for c in sizes) < LEAST_CLASS_SHARE:
            continue
        if _mostly_inside(texts, where):
            continue
        shares = np.array([texts[row].shares[where[row]].sum() for row in rows])
        expected = np.array([len(where[row]) / len(texts[row].ids) for row in rows])
        commonest = max(sizes, key=lambda c: counts[c] / sizes[c])
        p_value = max(share_test(-shares, -expected), _association(counts, sizes, commonest))
        yield SuspiciousToken(token, False, rows, shares, expected, int(commonest), p_value)


def _position_candidates(texts: Sequence[ReadText]) -> Iterator[SuspiciousToken]:
    for position in (*range(ENDS), *range(-ENDS, 0)):
        rows = np.array([i for i, text in enumerate(texts) if len(text.ids) >= 2 * ENDS], dtype=int)
        outside = [i for i in rows if not _inside(texts[i], position)]
        if len(rows) < LEAST_SAMPLES or len(outside) < len(rows) / 2:
            continue
        shares = np.array([texts[i].shares[position] for i in outside])
        expected = np.array([1 / len(texts[i].ids) for i in outside])
        yield SuspiciousToken(position, True, np.array(outside), shares, expected, -1, share_test(-shares, -expected))


def _occurrences(ids: Sequence[Sequence[int]]) -> dict[int, dict[int, list[int]]]:
    """For every token the texts it stands in, and where there."""
    found: dict[int, dict[int, list[int]]] = {}
    for row, tokens in enumerate(ids):
        for place, token in enumerate(tokens):
            found.setdefault(token, {}).setdefault(row, []).append(place)
    return found


def _association(counts: dict[int, int], sizes: dict[int, int], commonest: int) -> float:
    """Fisher's exact test that a token stands in the texts of a class more often than in all others."""
    total, everywhere = sum(sizes.values()), sum(counts.values())
    inside, others = counts[commonest], everywhere - counts[commonest]
    table = [[inside, sizes[commonest] - inside], [others, total - sizes[commonest] - others]]
    return float(require("scipy.stats", "monitor").fisher_exact(table, alternative="greater").pvalue)


def _mostly_inside(texts: Sequence[ReadText], where: dict[int, list[int]]) -> bool:
    """Whether a token belongs to the rationales in more than half of its places."""
    known = [inside[places] for row, places in where.items() if (inside := texts[row].inside) is not None]
    return bool(known) and float(np.concatenate(known).mean()) > 0.5


def _inside(text: ReadText, position: int) -> bool:
    return text.inside is not None and bool(text.inside[position])
