from dataclasses import replace

import numpy as np
import pytest

from lrptrain.findings.detectors.tokens import TextContent, _position_in_words, suspicious_tokens

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
    assert found(rare) == [] or (WORD, False, 1) not in found(rare)


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
