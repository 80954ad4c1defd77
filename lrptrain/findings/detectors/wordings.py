"""Does the prediction follow a text's punctuation, its links and numbers, or its capitals? It takes no annotation."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.lengths import has_single_segments
from lrptrain.findings.detectors.tokens import MIN_TOKEN_RATIO, MIN_TOKEN_TEXTS
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, any_goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.statistics import sign_flip_test
from lrptrain.findings.text_words import relevance_of, unmarked, words_of
from lrptrain.intervention import Region
from lrptrain.intervention.casing import CasedText, in_all_cases
from lrptrain.intervention.text_words import (
    MARKERS,
    TextWord,
    is_punctuation,
    markers_of,
    outside_markers,
    text_words,
)
from lrptrain.intervention.words import Span

LEAST_EFFECT = 0.2
"""The least mean change of a probability that confirms a reliance on punctuation or markers. In trials with tweets
(experiments/detection) clean models moved by 0.04 at most, and those that read a planted one by 0.3 and more."""
MOST_MARKS = 8
"""So many kinds of punctuation are counted, the commonest."""
MIN_EXACT = 0.5
"""Of so many of the texts the tokenizer has to give back the very ids, or their case is not tested."""


class _RelianceOnWords(UnlocatedReliance):
    """The prediction follows certain words, which the maps need not point at."""

    least_effect = LEAST_EFFECT

    def relevance_sentence(self, finding: Finding) -> str:
        """Return that no map was asked."""
        return "tested whatever the maps say"


class RelianceOnPunctuation(_RelianceOnWords):
    """The prediction follows punctuation: which marks there are, how many and where."""

    kind = "reliance_on_punctuation"
    title = "The prediction relies on punctuation"
    order = 76
    remedy = 'if wrong, guidance by swap="punctuation": docs/how-to/guidance.md'
    changed = "the punctuation"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the texts, if their punctuation goes with the answers, or the maps point at it."""
        if not _can_be_reworded(evaluation, config):
            return
        every = [words_of(each, config.name_tokens) for each in evaluation.samples]
        marks = [
            [word for word in unmarked(outside_markers(words), each) if is_punctuation(word.text)]
            for words, each in zip(every, evaluation.samples, strict=True)
        ]
        spans = [[word.span for word in words] for words in marks]
        counts = [Counter(word.text for word in words) for words in marks]
        commonest = [mark for mark, _ in sum(counts, Counter()).most_common(MOST_MARKS)]
        numbers = np.array([[len(words) for words in spans], *([each[mark] for each in counts] for mark in commonest)])
        if _is_suspect(evaluation, config, spans, numbers):
            chosen = tuple(text_words(words, text_spans) for words, text_spans in zip(every, spans, strict=True))
            finding = self.finding(evaluation, config, "punctuation")
            yield Candidate(finding, Region("punctuation", texts=chosen), judged_rows(len(every)))


class RelianceOnMarkers(_RelianceOnWords):
    """The prediction follows what tells where a text comes from: links, mentions, hashtags, addresses, numbers."""

    kind = "reliance_on_markers"
    title = "The prediction relies on links, names of users or numbers"
    order = 77
    remedy = 'if wrong, guidance by swap="markers": docs/how-to/guidance.md'
    changed = "these"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the texts, if markers go with the answers, or the maps point at them."""
        if not _can_be_reworded(evaluation, config):
            return
        every = [words_of(each, config.name_tokens) for each in evaluation.samples]
        markers = [markers_of(unmarked(words, each)) for words, each in zip(every, evaluation.samples, strict=True)]
        spans = [[marker.span for marker in each] for each in markers]
        counts = [Counter(marker.kind for marker in each) for each in markers]
        digits = [sum(len(marker.text) for marker in each if marker.kind == "number") for each in markers]
        numbers = np.array(
            [[len(each) for each in spans], digits, *([each[kind] for each in counts] for kind in MARKERS)]
        )
        if _is_suspect(evaluation, config, spans, numbers):
            chosen = tuple(text_words(words, text_spans) for words, text_spans in zip(every, spans, strict=True))
            kinds = [f"{kind}s" for kind, _ in sum(counts, Counter()).most_common()]
            finding = self.finding(evaluation, config, _listed(kinds))
            yield Candidate(finding, Region("markers", texts=chosen), judged_rows(len(every)))


class RelianceOnCase(UnlocatedReliance):
    """The prediction follows how a text is written: in small letters, as sentences, as a headline, or in capitals."""

    kind = "reliance_on_case"
    title = "The prediction relies on capitals"
    order = 78
    remedy = 'if wrong, lower-case all texts, or guidance by swap="case"'
    changed = "the case of its letters"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the texts, if their capitals go with the answers."""
        if not _can_be_reworded(evaluation, config):
            return
        every = [words_of(each, config.name_tokens) for each in evaluation.samples]
        capitals = np.array([_capitals(words) for words in every]).T
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if not any_goes_with_the_answer(capitals, predicted, config.confidence):
            return
        cased = _cased(evaluation, config.tokenizer)
        rows = judged_rows(len(every))
        finding = self.finding(evaluation, config, "how texts are capitalised")
        exact = np.array([row for row in rows.tolist() if cased[row] is not None], dtype=int)
        # With the others among them the intervention says why it is not made.
        tested = exact if len(exact) >= MIN_EXACT * len(rows) else rows
        yield Candidate(finding, Region("case", texts=cased), tested)


def _can_be_reworded(evaluation: Evaluation, config: DetectionConfig) -> bool:
    """Return whether an intervention will follow, on single texts whose tokens have names."""
    texts = evaluation.medium == "text" and config.tokenizer is not None
    return texts and evaluation.inputs is not None and has_single_segments(evaluation.inputs)


def _is_suspect(
    evaluation: Evaluation,
    config: DetectionConfig,
    spans: Sequence[Sequence[Span]],
    numbers: Float[np.ndarray, "properties n"],
) -> bool:
    """Return whether certain words go with the answers by what can be counted of them, or are read.

    Args:
        evaluation: What was explained.
        config: The level of both tests together.
        spans: Where these words stand in every text.
        numbers: What was counted of them.
    """
    rows = [row for row, text_spans in enumerate(spans) if text_spans]
    if len(rows) < MIN_TOKEN_TEXTS:
        return False
    level = 1 - (1 - config.confidence) / 2
    predicted = np.array([explained.predicted for explained in evaluation.samples])
    if any_goes_with_the_answer(numbers, predicted, level):
        return True
    pairs = [relevance_of(evaluation.samples[row], spans[row]) for row in rows]
    shares, expected = (np.array(column) for column in zip(*pairs, strict=True))
    return bool(shares.mean() >= MIN_TOKEN_RATIO * expected.mean() and sign_flip_test(-shares, -expected) <= 1 - level)


def _capitals(words: Sequence[TextWord]) -> tuple[float, float]:
    """Return the share of a text's words that begin with a capital, and of its letters that are capitals."""
    cased = [word.text for word in words if word.text.lower() != word.text.upper()]
    letters = "".join(cased)
    initials = [word[0] for word in cased]
    return (
        sum(each != each.lower() for each in initials) / max(len(initials), 1),
        sum(each != each.lower() for each in letters) / max(len(letters), 1),
    )


def _cased(evaluation: Evaluation, tokenizer: Any) -> tuple[CasedText | None, ...]:
    """Return every text in all cases."""
    assert evaluation.inputs is not None
    return in_all_cases([_attended(sample.tensors) for sample in evaluation.inputs], tokenizer)


def _attended(tensors: Any) -> list[int]:
    ids = tensors["input_ids"]
    mask = tensors.get("attention_mask")
    attended = ids if mask is None or mask.ndim != 1 else ids[mask != 0]
    return [int(number) for number in attended]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


for _detector in (RelianceOnPunctuation(), RelianceOnMarkers(), RelianceOnCase()):
    register_detector(_detector)
