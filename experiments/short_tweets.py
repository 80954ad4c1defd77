"""Short tweets of two moods with the words that carry the mood, and a word planted between the others."""

import re
from functools import cache

import numpy as np
from torch import Tensor

from experiments.data import dataset
from lrptrain.data import TextSpans
from lrptrain.data.texts import Example, fast_tokenizer

LENGTH, COVERED = 20, 0.6
"""Word pieces of the longest tweet, planted word and special tokens included; most words that are rationale."""

tokenizer = cache(lambda: fast_tokenizer("minilm"))


@cache
def short_tweets() -> tuple[Example, ...]:
    """All that are short and have words beside the rationale; class 0 is negative, 1 positive."""
    source = TextSpans(
        str(dataset("tweets")),
        label_column="sentiment",
        rationale_column="selected_text",
        labels=["negative", "positive"],
        val_share=0.5,
    )
    source.setup()
    return tuple(example for example in (*source.splits["train"], *source.splits["val"]) if suited(example))


def suited(example: Example) -> bool:
    """Short, and with words beside the rationale."""
    if example.spans is None:
        return False
    ((start, end),) = example.spans
    few = len(example.text[start:end].split()) < COVERED * len(example.text.split())
    return few and len(tokenizer()(example.text)["input_ids"]) < LENGTH


def with_word(example: Example, word: str, rng: np.random.Generator) -> Example:
    """The word at a random place between others, outside of the rationale; anywhere where nothing is marked."""
    spans = example.spans or ()
    gaps = [0, *(gap.end() for gap in re.finditer(r"\s+", example.text))]
    place = rng.choice([gap for gap in gaps if all(gap <= start or gap >= end for start, end in spans)])
    text = f"{example.text[:place]}{word} {example.text[place:]}"
    added = len(word) + 1
    moved = tuple((start + added, end + added) if place <= start else (start, end) for start, end in spans)
    return Example(text, example.label, moved or None)


def inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a model takes of a batch."""
    return {name: batch[name] for name in ("input_ids", "attention_mask")}
