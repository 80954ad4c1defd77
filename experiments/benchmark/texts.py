"""Short tweets with a mark that goes with their mood, or does not, and the small MiniLM that learns the mood."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

import lrptrain
from experiments.benchmark import fresh_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.images import Columns, shown
from experiments.benchmark.text_marks import TEXT_MARKS
from experiments.minilm import network as minilm
from experiments.short_tweets import short_tweets, tokenizer
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import Example, collate_texts

BLOCKS, LR, BATCH, TRAIN, STEPS, HELD_OUT = 2, 5e-4, 16, 1200, 100, 200
CLASSES = ("negative", "positive")
SHORT = 13
"""Word pieces of the longest tweet, [CLS] and [SEP] included."""
LONGEST = SHORT + 8
"""The same with a mark."""


def network(seed: int) -> nn.Module:
    """MiniLM's first two blocks; its embeddings stay as they are."""
    net = minilm(seed)
    net.bert.encoder.layer = net.bert.encoder.layer[:BLOCKS]
    return net


def head(net: nn.Module) -> nn.Module:
    """What reads the embedding."""
    return net.classifier


def look(_: Case) -> dict[str, Any]:
    """What a monitor is told of the texts."""
    return {"tokenizer": tokenizer(), "show": lrptrain.Show(class_names=CLASSES, max_pictures=0)}


@cache
def stock(split: str) -> tuple[Example, ...]:
    """The tweets of a split: no tweet is in both."""
    tweets = [tweet for tweet in short_tweets() if len(tokenizer()(tweet.text)["input_ids"]) <= SHORT]
    rows = stratified_split([tweet.label for tweet in tweets], 0.3, 0)[split == "test"]
    return tuple(tweets[row] for row in rows)


def tokens(tweets: list[tuple[int, Example]]) -> Columns:
    """All of them as one padded batch."""
    return collate_texts(tweets, tokenizer(), LONGEST)


def samples(
    case: Case, split: str, count: int, seed: int, collate: Callable[[list[tuple[int, Example]]], Columns] = tokens
) -> Callable[[bool], Columns]:
    """Return what makes the tweets of a run; see `images.samples`."""
    tweets = stock(split)
    rows = np.random.default_rng([case.randomness, seed]).choice(len(tweets), count, replace=False)
    chosen = [tweets[row] for row in rows]
    labels = np.array([each.label for each in chosen])

    def make(related: bool) -> Columns:
        correlation = case.correlation if related else None
        forms = shown(labels, correlation, len(CLASSES), [case.randomness, seed, 1])
        return collate(list(enumerate(marked(chosen, forms, case, seed))))

    return make


def marked(tweets: list[Example], forms: Int[np.ndarray, " n"], case: Case, seed: int) -> list[Example]:
    """The tweets with their marks; each draws for itself, so that the form of one changes no other."""
    if case.kind == NO_MARK:
        return tweets
    pairs = enumerate(zip(tweets, forms, strict=True))
    randomness = [case.randomness, seed, 2]
    mark = {**TEXT_MARKS, **fresh_marks.TEXT_MARKS}[case.kind]
    return [mark(tweet, int(form), np.random.default_rng([*randomness, i])) for i, (tweet, form) in pairs]
