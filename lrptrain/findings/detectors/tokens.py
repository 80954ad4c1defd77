"""Which tokens have too much relevance: wherever they stand, tied to a class, and outside of the rationales?"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.extras import require
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.evaluation import Evaluation, ExplainedSample
from lrptrain.findings.finding import Finding
from lrptrain.findings.halves import judging, suspecting
from lrptrain.findings.scopes import OVERALL, Scope
from lrptrain.findings.statistics import holm, sign_flip_test
from lrptrain.intervention import Region

MIN_TOKEN_TEXTS = 8
MIN_CLASS_SHARE = 0.3
"""A token counts if it stands in this share of the texts of some predicted class: rarer words cannot carry a class."""
MIN_TOKEN_RATIO = 2.0
"""It counts if it has this many times the relevance of the average token."""
END_POSITIONS = 2
"""As many positions at either end of a text are tested, too."""
LEAST_EFFECT_OF_A_POSITION = 0.15
"""The least mean change of a probability that confirms a position, without rationales: the words that stand there may
be what a text is about. In tweets with nothing that tells their mood, taking the first one away moved the answer by
0.08 at most, and that of a tweet with another answer in its place by 0.21, where an exchange takes 0.3; in tweets whose
word order went with their mood by 0.08 to 0.43, and 0.33 to 0.73."""


class SuspiciousToken(Detector):
    """The relevance lies on a token that goes with a class, or at the first or last positions of texts."""

    kind = "suspicious_token"
    title = "The relevance lies on a token"
    order = 60
    named_by_place = True

    def least_effect_of(self, finding: Finding) -> float:
        """Return what a position takes where no rationale says what the texts are about."""
        # A token is one of a class, a position one of all texts.
        at_position = finding.scope == OVERALL
        return LEAST_EFFECT_OF_A_POSITION if at_position and not finding.annotated else self.least_effect

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the tokens and positions with too much relevance, with the texts that have them."""
        if any(explained.content_ids is None for explained in evaluation.samples):
            return
        texts = [_content(explained) for explained in evaluation.samples]
        for token in suspicious_tokens(texts, config.confidence):
            if token.is_position:
                where = _position_in_words(token.what)
                scope = OVERALL
                region = Region("place", token.what)
            else:
                where = f"the token {config.name_tokens([token.what])[0].strip()!r}"
                scope = Scope("class", config.class_names[token.predicted])
                region = Region("token", token.what)
            finding = high_share_finding(
                self,
                evaluation,
                config,
                scope,
                where,
                token.rows,
                token.shares,
                reference=float(token.expected.mean()),
                p_value=token.p_value,
            )
            yield Candidate(finding, region, token.judges)


def _content(explained: ExplainedSample) -> "TextContent":
    """Return the content of a text, and the relevance of each of its tokens as a share."""
    assert explained.content_ids is not None
    content = explained.content_ids >= 0
    relevance = explained.positive_relevance[content]
    return TextContent(
        token_ids=explained.content_ids[content],
        shares=relevance / max(relevance.sum(), 1e-12),
        annotated=None if explained.annotated is None else explained.annotated[content],
        predicted=explained.predicted,
    )


def _position_in_words(position: int) -> str:
    """Return a position in words; 0 is the first token, -1 the last."""
    names = {0: "the first token", 1: "the second token", -1: "the last token", -2: "the second-to-last token"}
    return names.get(position, f"token {position + 1}" if position >= 0 else f"token {-position} from the end")


@dataclass(frozen=True)
class TextContent:
    """The content tokens of a text, and how relevant each of them is.

    Attributes:
        token_ids: The token ids.
        shares: The share of the positive relevance on each token, summing to 1 (or to 0 where none is positive).
        annotated: True at tokens of the rationale; None without one.
        predicted: The predicted class.
    """

    token_ids: Int[np.ndarray, " tokens"]
    shares: Float[np.ndarray, " tokens"]
    annotated: Bool[np.ndarray, " tokens"] | None
    predicted: int


class TokenStatistics(NamedTuple):
    """A token, or a position, with too much relevance.

    Attributes:
        what: The token id, or a position: 0 is the first content token, -1 the last.
        is_position: Whether `what` is a position.
        rows: The texts that it stands in, and is suspected in.
        shares: Its share of the relevance in each of these texts.
        expected: The share that it would have if all tokens of the text had the same.
        predicted: The predicted class that it goes with; -1 for a position.
        p_value: The p-value, corrected over all tokens and positions tested.
        judges: The texts to change; where many have it, others than `rows`.
    """

    what: int
    is_position: bool
    rows: Int[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    predicted: int
    p_value: float
    judges: Int[np.ndarray, " judges"]


def suspicious_tokens(texts: Sequence[TextContent], confidence: float = 0.95) -> list[TokenStatistics]:
    """Find tokens whose relevance is high wherever they stand and whose presence goes with a predicted class.

    A token must stand in `MIN_CLASS_SHARE` of the texts of some predicted class, outside of the rationales more
    often than inside, have more than its share of the relevance (sign-flip test) and go with the prediction (Fisher's
    exact test of its commonest class against the others); the larger of both p-values is corrected over all candidates
    (Holm). Positions at either end of the texts are tested for relevance alone, in the texts that have none of the
    tokens found there: a token that always comes last would be found twice, and its place for nothing but the token.

    Args:
        texts: The texts of the sample.
        confidence: `1 - confidence` is the level of all tests together.
    """
    tokens = list(_token_candidates(texts))
    # Both times all words and positions are one family: with hundreds of words some would pass by chance.
    suspects = _significant([*tokens, *_position_candidates(texts)], confidence)
    token_ids = {suspect.what for suspect in suspects if not suspect.is_position}
    return _significant([*tokens, *_position_candidates(texts, token_ids)], confidence) if token_ids else suspects


def _significant(candidates: Sequence[TokenStatistics], confidence: float) -> list[TokenStatistics]:
    """Return the candidates that pass the tests, with p-values that are corrected for the number of all of them."""
    p_values = holm([candidate.p_value for candidate in candidates])
    return [
        candidate._replace(p_value=float(p_value))
        for candidate, p_value in zip(candidates, p_values, strict=True)
        if p_value <= 1 - confidence and candidate.shares.mean() >= MIN_TOKEN_RATIO * candidate.expected.mean()
    ]


def _token_candidates(texts: Sequence[TextContent]) -> Iterator[TokenStatistics]:
    """Yield every token that is common in the texts of a class and stands outside of the rationales, with its tests."""
    predicted = np.array([text.predicted for text in texts])
    class_sizes = {label: int((predicted == label).sum()) for label in np.unique(predicted)}
    for token, places in _places([text.token_ids.tolist() for text in texts]).items():
        rows = np.array(sorted(places))
        counts = {label: int((predicted[rows] == label).sum()) for label in class_sizes}
        # In what share of each class's texts the token stands; a frequent one in a small class counts as much.
        class_shares = {label: counts[label] / class_sizes[label] for label in class_sizes}
        if len(rows) < MIN_TOKEN_TEXTS or max(class_shares.values()) < MIN_CLASS_SHARE:
            continue
        if _mostly_annotated(texts, places):
            continue
        standing = rows
        rows = suspecting(standing)
        # Half of the texts that lack it, too, or it would seem rarer than it is.
        lacking = np.setdiff1d(np.arange(len(texts)), standing)
        seen = np.concatenate([rows, lacking if len(rows) == len(standing) else lacking[1::2]])
        counts = {label: int((predicted[rows] == label).sum()) for label in class_sizes}
        sizes_seen = {label: int((predicted[seen] == label).sum()) for label in class_sizes}
        shares = np.array([texts[row].shares[places[row]].sum() for row in rows])
        # e.g. twice in a text of ten tokens: a uniform map has 0.2 of its relevance there.
        expected = np.array([len(places[row]) / len(texts[row].token_ids) for row in rows])
        commonest = max(class_shares, key=lambda label: class_shares[label])
        # Both must be unlikely by chance: that it is relevant, and that it goes with the class.
        p_value = max(sign_flip_test(-shares, -expected), _association(counts, sizes_seen, commonest))
        yield TokenStatistics(token, False, rows, shares, expected, int(commonest), p_value, judging(standing))


def _position_candidates(texts: Sequence[TextContent], token_ids: Collection[int] = ()) -> Iterator[TokenStatistics]:
    """Yield the first and the last positions, with a test of their relevance where no rationale covers them.

    Args:
        texts: The texts.
        token_ids: Texts that have one of these tokens at a position are no part of its test.
    """
    # In shorter texts the first positions would be the last as well.
    rows = [row for row, text in enumerate(texts) if len(text.token_ids) >= 2 * END_POSITIONS]
    # 0, 1, -2, -1
    for position in (*range(END_POSITIONS), *range(-END_POSITIONS, 0)):
        # A position that belongs to the rationale in most texts is evidence.
        outside = [row for row in rows if not _is_annotated(texts[row], position)]
        if len(outside) < len(rows) / 2:
            continue
        outside = [row for row in outside if int(texts[row].token_ids[position]) not in token_ids]
        if len(outside) < MIN_TOKEN_TEXTS:
            continue
        suspects = suspecting(np.array(outside))
        shares = np.array([texts[row].shares[position] for row in suspects])
        expected = np.array([1 / len(texts[row].token_ids) for row in suspects])
        p_value = sign_flip_test(-shares, -expected)
        judges = judging(np.array(outside))
        yield TokenStatistics(position, True, suspects, shares, expected, -1, p_value, judges)


def _places(texts: Sequence[Sequence[int]]) -> dict[int, dict[int, list[int]]]:
    """Return, for every token, the texts that it stands in and its places in each of them.

    The texts `[[7, 8, 7], [8]]` give `{7: {0: [0, 2]}, 8: {0: [1], 1: [0]}}`.
    """
    places: dict[int, dict[int, list[int]]] = {}
    for row, tokens in enumerate(texts):
        for place, token in enumerate(tokens):
            places.setdefault(token, {}).setdefault(row, []).append(place)
    return places


def _association(counts: dict[int, int], class_sizes: dict[int, int], label: int) -> float:
    """Return the p-value of Fisher's exact test that a token stands in a class's texts more often than in others.

    Args:
        counts: For each class, the number of its texts that have the token.
        class_sizes: For each class, the number of its texts.
        label: The class.
    """
    others_with = sum(counts.values()) - counts[label]
    others = sum(class_sizes.values()) - class_sizes[label]
    # Rows: this class, the others; columns: texts with the token, texts without it.
    table = [[counts[label], class_sizes[label] - counts[label]], [others_with, others - others_with]]
    return float(require("scipy.stats", "monitor").fisher_exact(table, alternative="greater").pvalue)


def _mostly_annotated(texts: Sequence[TextContent], places: dict[int, list[int]]) -> bool:
    """Return whether a token belongs to the rationales in more than half of its places."""
    annotated = [mask[indices] for row, indices in places.items() if (mask := texts[row].annotated) is not None]
    return bool(annotated) and float(np.concatenate(annotated).mean()) > 0.5


def _is_annotated(text: TextContent, position: int) -> bool:
    return text.annotated is not None and bool(text.annotated[position])


register_detector(SuspiciousToken())
