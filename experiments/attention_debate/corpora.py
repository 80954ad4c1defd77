"""Tweets and movie reviews: texts to train on, and texts that are audited."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from torch import Tensor

from experiments.data import dataset
from experiments.short_tweets import short_tweets, tokenizer
from lrptrain.data import EraserDocuments
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import Example, collate_texts

LENGTH = {"tweets": 24, "movies": 128}
"""Tokens at most, special ones included; of a review the last, where reviewers conclude."""
AUDITED = {"tweets": 64, "movies": 16}
"""Held-out texts, half of them of each class."""
HELD_OUT = 600
Texts = dict[str, Tensor]


@cache
def splits(corpus: str) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Training texts, and test texts that no model of the experiment has seen; the same for all seeds."""
    if corpus == "tweets":
        found = short_tweets()
        train, test = stratified_split([tweet.label for tweet in found], HELD_OUT / len(found), 0)
        return tuple(found[i] for i in train), tuple(found[i] for i in test)
    source = EraserDocuments(str(dataset("movies")))
    source.setup()
    train, test = (tuple(map(window, source.splits[split])) for split in ("train", "test"))
    return train, test


def window(example: Example) -> Example:
    """The last tokens of a document."""
    places = tokenizer()(example.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return Example(example.text[places[-(LENGTH["movies"] - 2) :][0][0] :], example.label, None)


def drawn(corpus: str, split: int, count: int, seed: int = 0) -> list[Example]:
    """So many texts of a split (0 training, 1 test), half of them of each class."""
    rng, texts = np.random.default_rng(seed), splits(corpus)[split]
    rows = [rng.permutation([i for i, text in enumerate(texts) if text.label == label]) for label in (0, 1)]
    return [texts[i] for own in rows for i in own[: count // 2]]


def batches(texts: Sequence[Example], corpus: str, size: int = 32) -> list[Texts]:
    """In their order, what a model reads of them."""
    parts = [list(enumerate(texts))[start : start + size] for start in range(0, len(texts), size)]
    encoded = [collate_texts(part, tokenizer(), LENGTH[corpus]) for part in parts]
    return [{name: one[name] for name in ("input_ids", "attention_mask", "label")} for one in encoded]
