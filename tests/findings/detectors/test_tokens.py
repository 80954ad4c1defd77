from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom

from lrptrain.findings import Finding
from lrptrain.findings.detectors.tokens import (
    SuspiciousToken,
    TextContent,
    _association,
    _position_in_words,
    suspicious_tokens,
)
from lrptrain.findings.scopes import OVERALL, Scope

WORD, COMMON = 900, 7


def texts(samples=60, planted=WORD, weight=10.0, both=False, seed=0):
    """Random words; a planted one, relevant, in the texts that are read as class 1."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(samples):
        ids, values = rng.integers(10, 500, 12), rng.gamma(1.0, size=12)
        ids[3] = COMMON
        if i % 2 or both:
            place = rng.integers(4, 10)
            ids[place], values[place] = planted, values[place] + weight
        found.append(TextContent(ids, values / values.sum(), None, i % 2))
    return found


def found(sample):
    return [(token.what, token.is_position, token.predicted) for token in suspicious_tokens(sample)]


def test_a_relevant_token_that_goes_with_a_class_is_found():
    (token,) = suspicious_tokens(texts())
    assert (token.what, token.is_position, token.predicted) == (WORD, False, 1)
    assert token.rows.tolist() == list(range(1, 60, 2))
    assert token.shares.mean() > 0.3
    np.testing.assert_allclose(token.expected, 1 / 12)
    assert token.p_value < 0.01


def test_it_must_be_relevant_frequent_and_go_with_the_class():
    assert found(texts(weight=0.0)) == []
    assert found(texts(both=True)) == []
    sample = texts()
    rare = [
        text if i % 8 == 1 else replace(text, token_ids=np.where(text.token_ids == WORD, 11, text.token_ids))
        for i, text in enumerate(sample)
    ]
    assert (WORD, False, 1) not in found(rare)


@pytest.mark.parametrize(("inside", "expected"), [(True, []), (False, [(WORD, False, 1)])])
def test_words_of_the_rationale_may_be_relevant(inside, expected):
    sample = [replace(text, annotated=(text.token_ids == WORD) == inside) for text in texts()]
    assert [one for one in found(sample) if not one[1]] == expected


def test_a_position_is_found_whatever_stands_there():
    def last(text):
        shares = text.shares.copy()
        shares[-1] += 1
        return replace(text, shares=shares / shares.sum())

    assert found([last(text) for text in texts(weight=0.0)]) == [(-1, True, -1)]


def at_the_end(text, number, everywhere):
    """The planted word stands last in every other text; the last token is relevant there, or in all texts."""
    ids, shares = text.token_ids.copy(), text.shares.copy()
    ids[-1] = WORD if number % 2 else ids[-1]
    shares[-1] += 1 if number % 2 or everywhere else 0
    return replace(text, token_ids=ids, shares=shares / shares.sum())


def test_a_position_takes_more_where_no_rationale_says_what_is_evidence():
    detector = SuspiciousToken()
    position = Finding("suspicious_token", OVERALL, "predicted", None, 0.95, epoch=0, step=0, first_epoch=0)
    assert detector.least_effect_of(position) == 0.15
    assert detector.least_effect_of(replace(position, annotated=True)) == 0.0
    assert detector.least_effect_of(replace(position, scope=Scope("class", "a"))) == 0.0


def test_a_place_that_only_echoes_a_token_is_not_found():
    plain = texts(planted=11, weight=0.0)
    assert found([at_the_end(text, i, False) for i, text in enumerate(plain)]) == [(WORD, False, 1)]
    token, place = suspicious_tokens([at_the_end(text, i, True) for i, text in enumerate(plain)])
    assert (token.what, place.what) == (WORD, -1)
    assert place.rows.tolist() == list(range(0, 60, 2))  # those without the token, which the intervention changes, too
    assert len(place.shares) == len(place.expected) == 30


def test_few_texts_and_empty_ones_are_no_evidence():
    assert found(texts(6)) == []
    empty = TextContent(np.empty(0, int), np.empty(0), None, 0)
    assert found([empty] * 20) == []
    assert found([]) == []


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (0, "the first token"), (1, "the second token"), (5, "token 6"), (-1, "the last token"),
        (-2, "the second-to-last token"), (-4, "token 4 from the end"),
    ],
)  # fmt: skip
def test_a_position_is_named_as_people_count(position, words):
    assert _position_in_words(position) == words


def test_a_word_and_a_place_of_many_texts_are_suspected_in_one_half_and_judged_in_the_other():
    def last(text):
        shares = text.shares.copy()
        shares[-1] += 1
        return replace(text, shares=shares / shares.sum())

    (token,) = suspicious_tokens(texts(512))
    (place,) = suspicious_tokens([last(text) for text in texts(256, weight=0.0)])
    for each, standing in ((token, range(1, 512, 2)), (place, range(256))):
        assert len(each.rows) == len(each.judges) == len(standing) / 2
        assert sorted([*each.rows.tolist(), *each.judges.tolist()]) == list(standing)
    # Of fewer, all texts do both.
    (few,) = suspicious_tokens(texts(510))
    assert few.rows.tolist() == few.judges.tolist() == list(range(1, 510, 2))


def heavier(text, where, times):
    """The text with some of its tokens so many times as relevant."""
    shares = text.shares * np.where(where, times, 1.0)
    return replace(text, shares=shares / shares.sum())


def uniform(text):
    return replace(text, shares=np.full(12, 1 / 12))


def test_a_few_texts_that_are_all_about_a_word_do_not_make_it_relevant():
    plain = [uniform(text) for text in texts()]
    # In 6 of 30 texts nearly all of the relevance, in the others next to none: twice its share in the mean.
    odd = [heavier(text, text.token_ids == WORD, 200.0 if i % 10 == 1 else 0.1) for i, text in enumerate(plain)]
    mean = np.mean([text.shares[text.token_ids == WORD].sum() for text in odd if (text.token_ids == WORD).any()])
    assert mean > 2 / 12
    assert found(odd) == []
    assert found([heavier(text, text.token_ids == WORD, 200.0) for text in plain]) == [(WORD, False, 1)]


def test_a_word_has_to_have_twice_its_share():
    plain = [uniform(text) for text in texts()]
    # A share of 1.8 / 12.8, and of 3 / 14.
    assert found([heavier(text, text.token_ids == WORD, 1.8) for text in plain]) == []
    assert found([heavier(text, text.token_ids == WORD, 3.0) for text in plain]) == [(WORD, False, 1)]


def test_p_values_are_corrected_for_all_words_and_positions():
    (token,) = suspicious_tokens([heavier(uniform(text), text.token_ids == WORD, 9.0) for text in texts()])
    # The least p-value of 9,999 random signs, times the planted word, the common one and four positions.
    assert token.p_value == pytest.approx(6 / 10_000)


def test_a_word_is_common_in_a_class_and_not_in_all_of_them_together():
    def with_words(of_each):
        sample = [uniform(text) for text in texts(400, planted=11, weight=0.0)]
        for label, count in enumerate(of_each):
            rows = [i for i in range(400) if i % 2 == label][:count]
            for row in rows:
                sample[row].token_ids[5] = WORD
        return [heavier(text, text.token_ids == WORD, 9.0) for text in sample]

    assert found(with_words((15, 50))) == []  # 7 % and 25 % of the texts
    assert found(with_words((15, 62))) == [(WORD, False, 1)]


def test_the_association_is_that_of_more_often_not_of_otherwise():
    # 10 of 60 texts have the word, 8 of them among the 30 of class 1.
    wanted = hypergeom.sf(7, 60, 30, 10)
    assert _association({0: 2, 1: 8}, {0: 30, 1: 30}, 1) == pytest.approx(wanted)
    assert _association({0: 8, 1: 2}, {0: 30, 1: 30}, 1) > 0.9


def test_of_many_texts_the_half_that_suspects_is_compared_with_a_half(monkeypatch):
    seen = []

    def noted(counts, sizes, label):
        seen.append((counts, sizes))
        return _association(counts, sizes, label)

    monkeypatch.setattr("lrptrain.findings.detectors.tokens._association", noted)
    assert found(texts(512)) == [(WORD, False, 1)]
    assert ({0: 0, 1: 128}, {0: 128, 1: 128}) in seen
    seen.clear()
    found(texts(100))
    assert ({0: 0, 1: 50}, {0: 50, 1: 50}) in seen


@pytest.mark.parametrize(("covered", "expected"), [(33, []), (27, [(-1, True, -1)])])
def test_a_position_that_is_evidence_in_most_texts_is_not_suspected(covered, expected):
    last = np.arange(12) == 11
    plain = [heavier(uniform(text), last, 9.0) for text in texts(weight=0.0)]
    sample = [replace(text, annotated=last & (i < covered)) for i, text in enumerate(plain)]
    assert [each for each in found(sample) if each[1]] == expected


@pytest.mark.parametrize(("share", "expected"), [(0.7, []), (0.3, [(WORD, False, 1)])])
def test_a_word_that_is_evidence_in_most_places_is_not_suspected(share, expected):
    sample = texts()
    rows = [i for i in range(60) if i % 2]
    marked = rows[: round(share * len(rows))]
    sample = [replace(text, annotated=(text.token_ids == WORD) & (i in marked)) for i, text in enumerate(sample)]
    assert [each for each in found(sample) if not each[1]] == expected


def test_texts_in_which_the_first_positions_are_the_last_have_none():
    def cut(length):
        sample = [replace(text, token_ids=text.token_ids[:length], shares=text.shares[:length]) for text in texts()]
        return [heavier(text, np.arange(length) == length - 1, 99.0) for text in sample]

    assert found(cut(3)) == []
    assert found(cut(4)) == [(-1, True, -1)]
