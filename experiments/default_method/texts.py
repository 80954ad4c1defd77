"""Short tweets with a planted word, or without."""

from functools import partial

import numpy as np
from torch.utils.data import DataLoader

from experiments.short_tweets import LENGTH, short_tweets, tokenizer, with_word
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import Example, text_loader

HELD_OUT, BATCH = 600, 16
WORDS = (("census", "cubic"), ("copper", "violin"), ("granite", "lantern"), ("orchid", "tunnel"))
"""Planted in negative and in positive tweets; a seed has one of the pairs."""
LONGEST = 2 * LENGTH
"""Word pieces of a tweet at most."""


def loaders(correlation: float, seed: int) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training tweets, held-out ones with the word, and the same without it.

    Args:
        correlation: The share (0..1) of the tweets that hold the word of their own class.
        seed: The seed of data and order.
    """
    tweets = short_tweets()
    train, held_out = stratified_split([tweet.label for tweet in tweets], HELD_OUT / len(tweets), seed)
    plain = [[tweets[i] for i in rows] for rows in (train, held_out)]
    first, shown = (_planted(examples, correlation, seed, place) for place, examples in enumerate(plain))
    batches = partial(text_loader, tokenizer=tokenizer(), max_length=LONGEST, batch_size=BATCH)
    return batches(first, shuffle=True), batches(shown), batches(plain[1])


def _planted(examples: list[Example], correlation: float, seed: int, place: int) -> list[Example]:
    """The tweets with a word, some with that of the other class."""
    rng = np.random.default_rng([seed, place])
    agrees = rng.random(len(examples)) < correlation
    shown = [each.label if own else 1 - each.label for each, own in zip(examples, agrees, strict=True)]
    words = WORDS[seed % len(WORDS)]
    return [with_word(each, words[label], rng) for each, label in zip(examples, shown, strict=True)]
