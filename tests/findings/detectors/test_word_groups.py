"""Words of one kind: when they are found, when not, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, announce
from lrptrain.findings.detectors.word_groups import (
    STANDS_OUT,
    SuspiciousWordGroup,
    alike,
    follows_meaning,
    with_all_alike,
    without_common_parts,
)
from lrptrain.findings.text_words import words_of
from lrptrain.intervention import Region
from lrptrain.cues.text_words import TextWord
from lrptrain.monitor.record_builder import RecordBuilder

TOWNS = ["oslo", "rome", "lima", "cairo", "paris", "delhi", "tokyo", "dublin"]
OTHERS = [first + vowel + last for first in "bdgklmnprst" for vowel in "aeiou" for last in ("", "l", "m", "n", "t")]
MOODS = ["good", "fine", "nice", "great", "lovely", "kind", "bad", "poor", "ugly", "sad", "cruel", "grim"]
WORDS = ["[CLS]", "[SEP]", *TOWNS, *OTHERS, *MOODS, "@"]
NUMBER = {word: i for i, word in enumerate(WORDS)}
WIDTH = 400
LIKE = 0.55


def vectors():
    """Towns are alike, and moods, of which the good ones are still more alike; other words are not.

    By a cosine of 0.25 in the mean, so that no kind stands out from what all words have.
    """
    rng = np.random.default_rng(0)
    own = {word: rng.normal(size=WIDTH) for word in WORDS}
    town, mood, good, bad = rng.normal(size=(4, WIDTH))
    for word in TOWNS:
        own[word] = own[word] + LIKE * town
    for i, word in enumerate(MOODS):
        own[word] = own[word] + LIKE * (mood + 0.7 * (good if i < 6 else bad))
    return {NUMBER[word]: vector for word, vector in own.items()}


VECTORS = vectors()


class Names:
    """Stands for a tokenizer."""

    def convert_ids_to_tokens(self, ids):
        return [WORDS[i] for i in ids]


CONFIG = DetectionConfig(["cat", "dog"], Names().convert_ids_to_tokens, tokenizer=Names())


def explained(i, label, words, read, annotated=()):
    ids = [NUMBER[word] for word in ("[CLS]", *words, "[SEP]")]
    relevance = torch.tensor([0.0, *(5.0 if word in read else 1.0 for word in words), 0.0])
    content = np.array([-1, *ids[1:-1], -1])
    marked = np.array([word in annotated for word in ("", *words, "")]) if annotated else None
    return ExplainedSample(
        Sample(f"s{i}", label, {}), label, np.array([0.9, 0.1]), {"label": relevance}, None, 2, np.nan, {},
        content_ids=content, annotated=marked,
    )  # fmt: skip


def evaluation(kinds, read, count=64, before=(), **more):
    """Each class has its own half of the words of a kind, one in every text."""
    rng = np.random.default_rng(1)
    samples = []
    for i in range(count):
        label = i % 2
        words = rng.choice(OTHERS, 6, replace=False).tolist()
        place = int(rng.integers(0, 6))
        words[place:place] = [*before, kinds[label][int(rng.integers(len(kinds[label])))]]
        samples.append(explained(i, label, words, read, **more))
    inputs = []
    for each in samples:
        ids = torch.tensor([0, *each.content_ids[1:-1].tolist(), 1])
        inputs.append(
            Sample(each.sample.sample_id, each.predicted, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        )
    return Evaluation(samples, inputs, epoch=2, step=9, token_vectors=VECTORS)


def split(words):
    return words[: len(words) // 2], words[len(words) // 2 :]


def detected(given, config=CONFIG):
    return list(SuspiciousWordGroup().detect(given, config))


def test_names_of_which_each_class_has_its_own_are_found_as_one():
    given = evaluation(split(TOWNS), TOWNS)
    (one,) = detected(given)
    assert one.region.kind == "words"
    assert one.finding.where.startswith("which of 8 words of one kind a text has: ")
    assert "... (cat); " in one.finding.where
    assert not one.finding.may_be_evidence
    assert one.finding.relevance.effect == pytest.approx(5 / 11)
    assert one.finding.relevance.reference == pytest.approx(1 / 7)
    assert one.finding.relevance.p_value == pytest.approx(1 / 10_000)  # the least of 9,999 random signs
    assert len(one.rows) == 64
    for words, each in zip(one.region.texts, given.samples, strict=True):
        ((start, stop),) = words.chosen
        assert WORDS[each.content_ids[start]] in TOWNS
        assert stop == start + 1
        assert words.starts == tuple(range(1, 8))


def test_many_texts_are_judged_in_an_even_choice_of_them():
    (one,) = detected(evaluation(split(TOWNS), TOWNS, count=200))
    assert len(one.rows) == 64
    assert np.ptp(np.diff(one.rows)) <= 1


def test_what_a_class_alone_has_is_no_exchange():
    assert detected(evaluation((TOWNS[:4], OTHERS), TOWNS)) == []


def test_names_of_users_are_no_kind_of_words_but_markers():
    assert detected(evaluation(split(TOWNS), TOWNS, before=["@"])) == []


def test_words_that_are_not_read_belong_to_a_kind_that_is():
    # As in a model that reads the towns of one class, and takes all else for the other.
    (one,) = detected(evaluation(split(TOWNS), TOWNS[:4]))
    assert one.finding.where.startswith("which of 8 words of one kind")
    assert len(one.rows) == 64
    # Three of eight, and all of them together have 1.8 times their share.
    assert detected(evaluation(split(TOWNS), TOWNS[:3])) == []
    # Where the towns that are read stand in both classes, the others are left out.
    (one,) = detected(evaluation((TOWNS[::2], TOWNS[1::2]), TOWNS[:4]))
    assert one.finding.where.startswith("which of 4 words of one kind")


def test_what_is_not_read_or_marked_as_evidence_is_not_suspected():
    assert detected(evaluation(split(TOWNS), [])) == []
    assert detected(evaluation(split(TOWNS), TOWNS, annotated=TOWNS)) == []
    assert len(detected(evaluation(split(TOWNS), TOWNS, annotated=OTHERS[:1]))) == 1


def test_words_whose_meaning_tells_their_class_are_evidence():
    assert detected(evaluation(split(MOODS), MOODS)) == []
    # The same words, dealt out otherwise: their meaning does not tell it.
    (one,) = detected(evaluation((MOODS[::2], MOODS[1::2]), MOODS))
    assert not one.finding.may_be_evidence


def test_of_few_words_nobody_can_tell():
    few = (TOWNS[:2], TOWNS[2:4])
    (one,) = detected(evaluation(few, TOWNS))
    assert one.finding.may_be_evidence
    assert detected(evaluation((TOWNS[:1], TOWNS[1:2]), TOWNS)) == []


def test_it_takes_a_tokenizer_an_embedding_and_an_intervention():
    given = evaluation(split(TOWNS), TOWNS)
    assert detected(given, replace(CONFIG, tokenizer=None)) == []
    assert detected(replace(given, token_vectors={})) == []
    assert detected(replace(given, inputs=None)) == []
    images = [replace(each, content_ids=None, grid=(1, 9)) for each in given.samples]
    assert detected(replace(given, samples=images)) == []


def test_words_are_alike_by_what_they_do_not_have_in_common_with_all():
    words = [(NUMBER[word],) for word in (*TOWNS, *MOODS, *OTHERS)]
    groups = {frozenset(WORDS[ids] for (ids,) in group) for group in alike(words, words, VECTORS) if len(group) > 3}
    assert groups == {frozenset(TOWNS), frozenset(MOODS)}
    # A large vector that all of them have: without it they would all be alike.
    moved = {i: vector + 30 for i, vector in VECTORS.items()}
    assert set(alike(words, words, moved)) == set(alike(words, words, VECTORS))
    # Of an embedding of 16 numbers cosines of 0.3 come by chance.
    rng = np.random.default_rng(2)
    narrow = {i: rng.normal(size=16) for i in range(len(WORDS))}
    assert max(map(len, alike(words, words, narrow))) <= 3
    assert alike(words[:1], words, VECTORS) == [frozenset(words[:1])]
    assert alike([], words, VECTORS) == []
    towns = frozenset((NUMBER[word],) for word in TOWNS)
    assert with_all_alike(sorted(towns)[:3], words, VECTORS) == towns


def test_the_test_of_meaning_is_right_in_its_extremes():
    given = evaluation(split(MOODS), MOODS)
    predicted = np.array([each.predicted for each in given.samples])
    usable = [words_of(each, CONFIG.name_tokens) for each in given.samples]
    moods = [(NUMBER[word],) for word in MOODS]
    # Of 12 words 6 and 6, two of 924 ways agree as well as this one.
    assert follows_meaning(moods, usable, predicted, VECTORS) <= 5 / 1000
    towns = evaluation(split(TOWNS), TOWNS)
    usable = [words_of(each, CONFIG.name_tokens) for each in towns.samples]
    assert follows_meaning([(NUMBER[word],) for word in TOWNS], usable, predicted, VECTORS) > 0.05


def test_the_test_of_meaning_counts_pairs_of_two_words_by_how_often_both_occur():
    """Against the sum over pairs, written out, with the same orders."""
    rng = np.random.default_rng(3)
    for draw in range(4):
        words = [(i,) for i in range(6)]
        embedding = {i: rng.normal(size=8) for i in range(6)}
        texts = [
            [TextWord("", word, (0, 1), True) for word in words for _ in range(int(rng.integers(0, 4)))]
            for _ in range(12)
        ]
        texts.append([TextWord("", word, (0, 1), True) for word in words])
        predicted = np.arange(13) % 2
        times = np.zeros((6, 2))
        for text, label in zip(texts, predicted, strict=True):
            for word in text:
                times[word.ids[0], label] += 1
        occurs = times.sum(1)
        mean = sum(embedding.values()) / 6  # over different words
        unit = [(embedding[i] - mean) / np.linalg.norm(embedding[i] - mean) for i in range(6)]

        def agreement(order, times=times, occurs=occurs, unit=unit):
            sides = (times / occurs[:, None])[order]
            away = [sides[i] - (occurs[:, None] * sides).sum(0) / occurs.sum() for i in range(6)]
            pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
            return sum(unit[i] @ unit[j] * (occurs[i] * occurs[j]) ** 0.5 * (away[i] @ away[j]) for i, j in pairs)

        orders = np.random.default_rng(0)
        observed = agreement(np.arange(6))
        drawn = [agreement(orders.permutation(6)) for _ in range(999)]
        as_high = sum(each >= observed - 1e-9 * abs(observed) for each in drawn)
        assert follows_meaning(words, texts, predicted, embedding) == pytest.approx((1 + as_high) / 1000), draw


def test_it_is_told_in_words_and_confirmed_from_25_points_on():
    given = evaluation(split(TOWNS), TOWNS)
    (one,) = detected(given)
    assert one.region == Region("words", texts=one.region.texts)

    def state(fall):
        effect = Effect(np.full(64, fall) + np.linspace(-0.01, 0.01, 64), np.zeros(64), "words")
        return RecordBuilder(class_names=["cat", "dog"]).build(given, [], [one], [effect])

    assert state(0.24).findings == []
    record = state(0.9)
    (text,) = announce(record.findings)
    assert text.startswith("SHORTCUT confirmed, all classes: the model goes by which of 8 words of one")
    assert "Exchanged for those of another class's text, the answer's probability falls" in text.replace("\n  ", " ")
    assert record.scalars["relevance/severity"] == pytest.approx(0.9, abs=0.01)


def put_in_by_a_task():
    """What a word is read as, more or less, along two directions."""
    rng = np.random.default_rng(4)
    directions = rng.normal(size=(2, WIDTH))
    return {i: rng.normal(size=2) @ directions for i in range(len(WORDS))}


def never_pretrained():
    """An embedding that knows nothing but its task: noise, and what the task put in."""
    rng = np.random.default_rng(5)
    return {i: rng.normal(size=WIDTH) + part for i, part in put_in_by_a_task().items()}


def test_words_that_a_task_made_alike_are_of_no_kind():
    """Each class's words are read alike, and so alike in an embedding that knows nothing else."""
    vectors = never_pretrained()
    along = np.linalg.svd(np.array(list(vectors.values())), full_matrices=False)[0][:, 0]
    read = [WORDS[i] for i in np.argsort(-along) if WORDS[i] in OTHERS][:60]
    words = [(NUMBER[word],) for word in OTHERS]
    assert max(map(len, alike([(NUMBER[word],) for word in read], words, vectors))) >= 10  # as if of a kind
    given = replace(evaluation(split(read), read), token_vectors=vectors)
    assert detected(given) == []
    # The same texts, and words that are alike beside what the task put in.
    also = {i: part + VECTORS[i] for i, part in put_in_by_a_task().items()}
    (one,) = detected(replace(evaluation(split(TOWNS), TOWNS), token_vectors=also))
    assert one.finding.where.startswith("which of 8 words of one kind")


def test_only_directions_that_stand_out_are_taken_out():
    ids = range(len(WORDS))
    plain = without_common_parts(VECTORS, 2)
    mean = np.mean([VECTORS[i] for i in ids], axis=0)
    assert all(np.allclose(plain[i], VECTORS[i] - mean, rtol=0, atol=1e-12) for i in ids)
    # Against the singular value decomposition in full.
    given = never_pretrained()
    rows = np.array([given[i] for i in ids])
    rows -= rows.mean(0)
    left, spreads, directions = np.linalg.svd(rows, full_matrices=False)
    assert spreads[1] ** 2 > STANDS_OUT * spreads[4] ** 2 > spreads[2] ** 2
    expected = rows - (left[:, :2] * spreads[:2]) @ directions[:2]
    rest = without_common_parts(given, 2)
    assert np.allclose([rest[i] for i in ids], expected, rtol=0, atol=1e-9)
    # Of as many words as there may be directions, or of none but one vector, nothing can be told.
    few = {i: given[i] for i in range(5)}
    centre = np.mean(list(few.values()), axis=0)
    assert np.allclose(list(without_common_parts(few, 2).values()), list(few.values()) - centre, rtol=0, atol=1e-12)
    same = dict.fromkeys(range(9), given[0])
    assert np.allclose(list(without_common_parts(same, 2).values()), 0, rtol=0, atol=1e-12)
