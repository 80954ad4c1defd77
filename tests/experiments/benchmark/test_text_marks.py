"""Marks in tweets leave the annotated words where they are to be found."""

import numpy as np
import pytest

from experiments.benchmark.text_marks import TEXT_MARKS
from lrptrain.data.texts import Example

TWEETS = [
    Example("what a lovely day it was", 1, ((7, 13),)),
    Example("sad to see you go home", 0, ((0, 3),)),
    Example("that is all really awful", 0, ((12, 24),)),
]


@pytest.mark.parametrize("kind", TEXT_MARKS)
@pytest.mark.parametrize("tweet", TWEETS, ids=lambda each: each.text[:8])
def test_the_rationale_is_still_the_same_words(kind, tweet):
    assert tweet.spans is not None
    start, end = tweet.spans[0]
    texts = set()
    for form in range(2):
        for seed in range(30):
            found = TEXT_MARKS[kind](tweet, form, np.random.default_rng(seed))
            assert found.spans is not None
            left, right = found.spans[0]
            assert found.text[left:right] == tweet.text[start:end]
            assert found.label == tweet.label
            texts.add((form, found.text))
    assert not {text for form, text in texts if form == 0} & {text for form, text in texts if form == 1}


def test_only_the_second_mood_has_a_word_twice():
    rng = np.random.default_rng(0)
    assert TEXT_MARKS["doubled"](TWEETS[0], 0, rng) == TWEETS[0]
    words = TEXT_MARKS["doubled"](TWEETS[0], 1, rng).text.split()
    assert len(words) == 7
    assert sum(words[i] == words[i + 1] for i in range(6)) == 1
