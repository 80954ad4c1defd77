"""Which kinds of words are read, that no single word is: any of eight names, of which each class has its own?"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.lengths import has_single_segments
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.detectors.tokens import MIN_CLASS_SHARE, MIN_TOKEN_RATIO, MIN_TOKEN_TEXTS
from lrptrain.findings.detectors.unlocated import evenly
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.findings.statistics import holm, sign_flip_test
from lrptrain.findings.text_words import relevance_of, unmarked, words_of
from lrptrain.findings.wording import intervention_sentence
from lrptrain.intervention import Region
from lrptrain.intervention.text_words import TextWord, outside_markers, text_words

MIN_WORDS = 3
"""Two words are found one by one, if each class has its own in a third of its texts."""
LIKENESS = 0.15
"""The mean cosine between the words of a kind. In MiniLM's embedding names of towns, centred, have 0.3 in the mean, and
words that have nothing to do with each other 0 with a deviation of 0.05."""
CHANCE_DEVIATIONS = 3.0
"""Words of a narrow embedding are alike by chance: their cosine has to be so many of its deviations."""
STANDS_OUT = 2.2
"""A direction with so many times the spread of the first that is surely none is no meaning: see `without_common_parts`.
The strongest of MiniLM's embedding has 1.4 to 1.9 times that of the fifth, of one that was trained on tweets alone 2.3
to 22 times (15 evaluations of 5 models)."""
MORE_DIRECTIONS = 3
"""The first direction that is surely none is so many beyond the number of classes."""
SURELY_FOLLOWS = 0.01
"""With so small a p-value the class of a word follows from its meaning, as of good and bad: it is evidence."""
MAY_FOLLOW = 0.2
"""With so small a p-value it may: a person judges it."""
FEW_WORDS = 6
"""Of fewer words nobody can tell."""
PERMUTATIONS = 999
MOST_GROUPS = 3
MOST_JUDGED = 64
MOST_NAMED = 3
"""So many words of each class are named."""

Word = tuple[int, ...]
"""A word by its token ids."""


class SuspiciousWordGroup(Detector):
    """The relevance lies on words of one kind, which stand in the texts of several classes.

    Of words that mean alike, such as names, a class has its own only where the texts were chosen so. The words that
    carry a mood mean alike, too, but they stand in the texts of one class. Where both classes have them (good, bad),
    their class follows from what they mean: see `follows_meaning`. Words of two kinds, of which each class has one
    (animals, dishes), cannot be told from evidence, and are not found.
    """

    kind = "suspicious_word_group"
    title = "The prediction goes by words of one kind"
    order = 62
    least_effect = 0.25
    reported_unconfirmed = False
    verb = "goes by"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the kinds of words with too much relevance, with the texts that have such words."""
        texts = evaluation.medium == "text" and config.tokenizer is not None
        embedded = bool(evaluation.token_vectors)
        if evaluation.inputs is None or not texts or not embedded or not has_single_segments(evaluation.inputs):
            return
        every = [words_of(each, config.name_tokens) for each in evaluation.samples]
        predicted = np.array([each.predicted for each in evaluation.samples])
        usable = [
            [word for word in unmarked(outside_markers(words), each) if any(letter.isalpha() for letter in word.text)]
            for words, each in zip(every, evaluation.samples, strict=True)
        ]
        vectors = without_common_parts(evaluation.token_vectors, len(np.unique(predicted)))
        groups = list(_groups(evaluation, usable, predicted, vectors))
        p_values = holm([group.p_value for group in groups])
        significant = [pair for pair in zip(groups, p_values, strict=True) if pair[1] <= 1 - config.confidence]
        for group, p_value in sorted(significant, key=lambda each: -len(each[0].rows))[:MOST_GROUPS]:
            follows = follows_meaning(group.words, usable, predicted, vectors)
            if follows <= SURELY_FOLLOWS:
                continue
            where = _in_words(group, usable, predicted, config.class_names)
            finding = high_share_finding(
                self,
                evaluation,
                config,
                OVERALL,
                where,
                group.rows,
                group.shares,
                reference=float(group.expected.mean()),
                p_value=float(p_value),
            )
            finding = replace(finding, may_be_evidence=len(group.words) < FEW_WORDS or follows <= MAY_FOLLOW)
            chosen = tuple(
                text_words(words, [word.span for word in candidates if word.ids in group.words])
                for words, candidates in zip(every, usable, strict=True)
            )
            yield Candidate(finding, Region("words", texts=chosen), group.rows[evenly(len(group.rows), MOST_JUDGED)])

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what exchanging the words does."""
        return intervention_sentence(finding, "these words")


class WordGroup(NamedTuple):
    """Words of one kind.

    Attributes:
        words: The words.
        rows: The texts that have any of them.
        shares: Their share of the relevance in each of these texts.
        expected: The share of a uniform map.
        p_value: That the relevance on them is so high by chance.
    """

    words: frozenset[Word]
    rows: Int[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    p_value: float


def _groups(
    evaluation: Evaluation,
    usable: Sequence[Sequence[TextWord]],
    predicted: Int[np.ndarray, " n"],
    vectors: Mapping[int, Float[np.ndarray, " width"]],
) -> Iterator[WordGroup]:
    """Yield the kinds of relevant words that stand in many texts of two classes, with the test of their relevance.

    Args:
        evaluation: What was explained.
        usable: The words of every text that may be in a group.
        predicted: The predicted class of each.
        vectors: The embedding of every token.
    """
    relevant = _relevant_words(evaluation, usable)
    every_word = sorted({word.ids for words in usable for word in words})
    for read in alike(relevant, every_word, vectors):
        if len(read) < MIN_WORDS:
            continue
        words = read
        if not _is_of_two_classes(words, usable, predicted):
            words = with_all_alike(read, every_word, vectors)
        if not _is_of_two_classes(words, usable, predicted):
            continue
        rows = _rows_with(words, usable)
        pairs = [
            relevance_of(evaluation.samples[row], [word.span for word in usable[row] if word.ids in words])
            for row in rows
        ]
        shares, expected = (np.array(column) for column in zip(*pairs, strict=True))
        if shares.mean() >= MIN_TOKEN_RATIO * expected.mean():
            yield WordGroup(words, rows, shares, expected, sign_flip_test(-shares, -expected))


def _rows_with(words: Collection[Word], usable: Sequence[Sequence[TextWord]]) -> Int[np.ndarray, " n"]:
    """Return the texts that have any of some words."""
    return np.array([row for row, text in enumerate(usable) if any(word.ids in words for word in text)], dtype=int)


def _is_of_two_classes(
    words: Collection[Word], usable: Sequence[Sequence[TextWord]], predicted: Int[np.ndarray, " n"]
) -> bool:
    """Return whether many texts, of two classes at least, have any of some words, so that they can be exchanged."""
    rows = _rows_with(words, usable)
    shares = [np.isin(np.flatnonzero(predicted == label), rows).mean() for label in np.unique(predicted)]
    return len(rows) >= MIN_TOKEN_TEXTS and sum(share >= MIN_CLASS_SHARE for share in shares) >= 2


def _relevant_words(evaluation: Evaluation, usable: Sequence[Sequence[TextWord]]) -> list[Word]:
    """Return the words that have more than their share of the relevance in the texts that they stand in."""
    shares: dict[Word, float] = defaultdict(float)
    expected: dict[Word, float] = defaultdict(float)
    for each, words in zip(evaluation.samples, usable, strict=True):
        for word in words:
            share, uniform = relevance_of(each, [word.span])
            shares[word.ids] += share
            expected[word.ids] += uniform
    return sorted(word for word, share in shares.items() if share >= MIN_TOKEN_RATIO * expected[word])


def without_common_parts(
    vectors: Mapping[int, Float[np.ndarray, " width"]], classes: int
) -> dict[int, Float[np.ndarray, " width"]]:
    """Return the embedding of tokens less what is in most of them, more or less: a direction that stands out.

    Words that mean alike are a few of many, and no direction of the embedding is theirs alone to a degree that shows. A
    task puts a direction into every word that it is trained on, by the class that the word speaks for: in an embedding
    that was never pre-trained that is all there is, and words would be of a kind because they are read alike.
    Pre-trained ones may have a direction for how common words are. Less these, likeness is one of meaning (Mu and
    Viswanath 2018, All-but-the-Top), and of an embedding that knows no meaning no words are alike.

    Args:
        vectors: The embedding of every token.
        classes: The number of classes.
    """
    ids = sorted(vectors)
    rows = np.array([vectors[each] for each in ids])
    rows = rows - rows.mean(0)
    count = classes + MORE_DIRECTIONS
    if count < min(rows.shape) and rows.any():
        linalg = require("scipy.sparse.linalg", "monitor")
        start = np.random.default_rng(0).normal(size=min(rows.shape))
        _, spreads, directions = linalg.svds(rows, count, v0=start)
        common = directions[spreads**2 > STANDS_OUT * spreads.min() ** 2]
        rows = rows - rows @ common.T @ common
    return dict(zip(ids, rows, strict=True))


def alike(
    words: Sequence[Word], every_word: Sequence[Word], vectors: Mapping[int, Float[np.ndarray, " width"]]
) -> list[frozenset[Word]]:
    """Return words in groups that mean alike, by the embedding of their tokens.

    Words are joined as long as the mean cosine between two groups is large enough (average linkage, Sokal and Michener
    1958). The embedding of a word is the mean over its tokens, less the mean over all words: what all of them have in
    common makes none alike.

    Args:
        words: The words to be grouped.
        every_word: All words, these among them.
        vectors: The embedding of every token.
    """
    if len(words) < 2:
        return [frozenset([word]) for word in words]
    unit = _centred(every_word, words, vectors)
    hierarchy = require("scipy.cluster.hierarchy", "monitor")
    # Of unit vectors, half of the squared distance is 1 less the cosine: vectors of zeros are like no others.
    distances = np.clip(1 - unit @ unit.T, 0, 2)
    pairs = distances[np.triu_indices(len(words), 1)]
    numbers = hierarchy.fcluster(hierarchy.average(pairs), 1 - _least_likeness(unit), "distance")
    groups: dict[int, list[Word]] = defaultdict(list)
    for word, number in zip(words, numbers.tolist(), strict=True):
        groups[number].append(word)
    return [frozenset(group) for group in groups.values()]


def _centred(
    every_word: Collection[Word], words: Sequence[Word], vectors: Mapping[int, Float[np.ndarray, " width"]]
) -> Float[np.ndarray, "words width"]:
    """Return the embedding of some words less the mean over all words, each of length 1; 0 where nothing is left."""
    mean = np.mean([_vector(word, vectors) for word in sorted(set(every_word))], axis=0)
    centred = np.array([_vector(word, vectors) - mean for word in words])
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(length > 0, length, 1))


def _vector(word: Word, vectors: Mapping[int, Float[np.ndarray, " width"]]) -> Float[np.ndarray, " width"]:
    return np.asarray(np.mean([vectors[token] for token in word], axis=0))


def with_all_alike(
    words: Collection[Word], every_word: Sequence[Word], vectors: Mapping[int, Float[np.ndarray, " width"]]
) -> frozenset[Word]:
    """Return words of a kind with all others of the kind, whether they are read or not.

    A model may read the words of one class alone, and take whatever has none of them for the other class: that other
    class's words tell what it does not read.

    Args:
        words: Words that are alike.
        every_word: All words, these among them.
        vectors: The embedding of every token.
    """
    unit = _centred(every_word, every_word, vectors)
    is_in = np.array([word in words for word in every_word])
    likeness = unit @ unit[is_in].mean(0)
    return frozenset(words) | {
        word for word, value in zip(every_word, likeness, strict=True) if value >= _least_likeness(unit)
    }


def _least_likeness(unit: Float[np.ndarray, "words width"]) -> float:
    """Return from which mean cosine on words are of a kind."""
    return float(max(LIKENESS, CHANCE_DEVIATIONS / np.sqrt(unit.shape[1])))


def follows_meaning(
    words: Collection[Word],
    usable: Sequence[Sequence[TextWord]],
    predicted: Int[np.ndarray, " n"],
    vectors: Mapping[int, Float[np.ndarray, " width"]],
) -> float:
    """Return how likely words that are alike would be read as the same class as often, if class and meaning were apart.

    Evidence is such that its meaning tells the class: of the words for moods, those that are most alike speak for the
    same mood. Names that were dealt out among the classes do not. A permutation test, in which the classes that a word
    stands in go to another word of the group; a pair of words counts by their cosine and by how often they occur.

    Args:
        words: The words of the group.
        usable: The words of every text.
        predicted: The predicted class of each text.
        vectors: The embedding of every token.
    """
    order = sorted(words)
    number = {word: i for i, word in enumerate(order)}
    classes = np.unique(predicted)
    counts = np.zeros((len(order), len(classes)))
    for text, label in zip(usable, predicted, strict=True):
        for word in text:
            if word.ids in number:
                counts[number[word.ids], np.searchsorted(classes, label)] += 1
    occurrences = counts.sum(1)
    sides = counts / occurrences[:, None]
    unit = _centred([word.ids for text in usable for word in text], order, vectors)
    pairs = (unit @ unit.T) * np.sqrt(np.outer(occurrences, occurrences))
    np.fill_diagonal(pairs, 0)

    def agreement(sides: Float[np.ndarray, "words classes"]) -> float:
        distance = sides - np.average(sides, axis=0, weights=occurrences)
        return float(np.einsum("ic,ij,jc->", distance, pairs, distance, optimize=True))

    rng = np.random.default_rng(0)
    observed = agreement(sides)
    drawn = np.array([agreement(sides[rng.permutation(len(order))]) for _ in range(PERMUTATIONS)])
    # The observed order is one of them, so that a p-value is never 0; equal sums differ by rounding.
    return float((1 + (drawn >= observed - 1e-9 * abs(observed)).sum()) / (1 + PERMUTATIONS))


def _in_words(
    group: WordGroup,
    every: Sequence[Sequence[TextWord]],
    predicted: Int[np.ndarray, " n"],
    class_names: Sequence[str],
) -> str:
    """Return the commonest words of the group in every class that has any more often than others."""
    counts: dict[str, Int[np.ndarray, " classes"]] = defaultdict(lambda: np.zeros(len(class_names), int))
    for words, label in zip(every, predicted, strict=True):
        for word in words:
            if word.ids in group.words:
                counts[word.text][label] += 1
    parts = []
    for label in np.unique(predicted).tolist():
        of_class = sorted(
            (word for word, count in counts.items() if count.argmax() == label),
            key=lambda word: (-counts[word][label], word),
        )
        if of_class:
            more = " ..." if len(of_class) > MOST_NAMED else ""
            parts.append(f"{', '.join(of_class[:MOST_NAMED])}{more} ({class_names[label]})")
    return f"which of {len(counts)} words of one kind a text has: {'; '.join(parts)}"


register_detector(SuspiciousWordGroup())
