"""Short tweets with a planted word or mark, or without, and the small MiniLM that learns their mood."""

from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import DataLoader
from transformers.utils import logging

from experiments.detection.cases import Case
from experiments.short_tweets import LENGTH, neutral_tweets, short_tweets, tokenizer, with_word
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import Example, text_loader
from lrptrain.models import TextClassifier

MINILM = {"num_hidden_layers": 3, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
HELD_OUT, BATCH, LR, EPOCHS, STEPS = 600, 16, 3e-4, 5, 25
"""Steps are those of an epoch."""
WORDS = (("census", "cubic"), ("copper", "violin"), ("granite", "lantern"), ("orchid", "tunnel"))
"""Planted in negative and in positive tweets; a seed has one of the pairs."""
MARKS = (" ;", " ~")
"""Behind negative and positive tweets."""
LONGEST = 2 * LENGTH
"""Word pieces of the longest tweet with another one behind it."""
CLASSES = ("negative", "positive")


def look() -> dict[str, Any]:
    """What a monitor is told of the texts."""
    return {"tokenizer": tokenizer(), "class_names": CLASSES}


def module() -> TextClassifier:
    """MiniLM's first three blocks without dropout; its embeddings stay as they are."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    found = TextClassifier(len(CLASSES), "minilm", MINILM, LR)
    found.net.bert.embeddings.requires_grad_(False)
    return found


def loaders(case: Case) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training tweets, held-out ones with the shortcut, and the same without it."""
    tweets = short_tweets()
    train, held_out = stratified_split([tweet.label for tweet in tweets], HELD_OUT / len(tweets), case.seed)
    plain = [[tweets[i] for i in rows] for rows in (train, held_out)]
    first, shown = (planted(examples, case, place) for place, examples in enumerate(plain))
    batches = partial(text_loader, tokenizer=tokenizer(), max_length=LONGEST, batch_size=BATCH)
    return batches(first, shuffle=True), batches(shown), batches(plain[1])


def planted(examples: list[Example], case: Case, place: int) -> list[Example]:
    """The tweets with the shortcut, some with that of the other class."""
    if case.shortcut == "none":
        return examples
    rng = np.random.default_rng([case.seed, place])
    agrees = rng.random(len(examples)) < case.correlation
    shown = [each.label if own else 1 - each.label for each, own in zip(examples, agrees, strict=True)]
    if case.shortcut == "punctuation":
        return [each._replace(text=each.text + MARKS[label]) for each, label in zip(examples, shown, strict=True)]
    if case.shortcut == "length":
        return [longer(each, rng) if label else each for each, label in zip(examples, shown, strict=True)]
    words = WORDS[case.seed % len(WORDS)]
    return [with_word(each, words[label], rng) for each, label in zip(examples, shown, strict=True)]


def longer(example: Example, rng: np.random.Generator) -> Example:
    """The tweet with another one behind it, of no mood."""
    others = neutral_tweets()
    return example._replace(text=f"{example.text} {others[rng.integers(len(others))]}")
