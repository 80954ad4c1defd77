"""Texts on MPNet: a word in every training text tells its mood, and people marked the words that carry it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers.utils import logging

import lrptrain
from experiments import weights
from experiments.data import dataset
from experiments.real_models.measured import Measure
from experiments.real_models.watched import PLAIN, SWAP, guidance_of, watched
from experiments.short_tweets import LENGTH, short_tweets, tokenizer, with_word
from lrptrain.data import EraserDocuments
from lrptrain.data.texts import Example, fast_tokenizer, text_loader
from lrptrain.models import TextClassifier

BATCH, STEPS, LR, FROZEN = 16, 30, 1e-4, 8
TRAIN, WATCHED, TEST = BATCH * STEPS, 32, 200
END = 128
"""Word pieces of a review that a model sees, the last ones, where reviewers conclude."""
MORE = 12
"""Word pieces beside those of a text: the planted word's, and what MPNet's tokenizer cuts otherwise than MiniLM's."""
CLASSES = ("negative", "positive")
WORDS = ("census", "cubic")
ARMS = (PLAIN, SWAP, "no word (upper bound)")
TESTED = ("with the word as in training", "without", "with the other mood's word")


class Corpus(NamedTuple):
    """Texts of two moods with marked words.

    Attributes:
        rest: What training and monitor draw theirs from, by seed.
        test: The same for every seed.
        longest: Word pieces at most.
    """

    rest: list[Example]
    test: list[Example]
    longest: int


def tweets() -> Corpus:
    """Short tweets."""
    every = short_tweets()
    rows = np.random.default_rng(0).permutation(len(every))
    shuffled = [every[row] for row in rows]
    return Corpus(shuffled[TEST:], shuffled[:TEST], LENGTH + MORE)


def reviews() -> Corpus:
    """The ends of film reviews: of the training ones those with a mark in it, all of the official test ones."""
    source = EraserDocuments(str(dataset("movies")))
    source.setup()
    train, test = (list(map(_end, source.splits[split])) for split in ("train", "test"))
    return Corpus([review for review in train if review.spans], test, END + MORE)


def _end(review: Example) -> Example:
    """The last word pieces, with what of the marks lies in them; None if nothing does."""
    places = tokenizer()(review.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    cut = places[-(END - 2) :][0][0]
    spans = tuple((max(start - cut, 0), end - cut) for start, end in review.spans or () if end > cut)
    return Example(review.text[cut:], review.label, spans or None)


CORPORA: dict[str, Callable[[], Corpus]] = {"tweets": tweets, "movies": reviews}


def module() -> TextClassifier:
    """MPNet without dropout, of which the last four blocks and the head are trained: the rest costs too much here."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    options = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    made = TextClassifier(len(CLASSES), str(weights.fetch("mpnet")), options, LR)
    body = made.net.base_model
    # The bias by distance is shared by all blocks: its gradient would need a pass back through all of them.
    for part in (body.embeddings, body.encoder.relative_attention_bias, *body.encoder.layer[:FROZEN]):
        part.requires_grad_(False)
    return made


def run(arm: str, seed: int, folder: Path, corpus: str = "tweets") -> dict[str, Any]:
    """Train one arm for an epoch under the monitor, and test it with the word, without it, and with the other one."""
    pl.seed_everything(seed, verbose=False)
    rng = np.random.default_rng(seed)
    texts = CORPORA[corpus]()
    drawn = [texts.rest[row] for row in rng.permutation(len(texts.rest))]
    plain = {"train": drawn[:TRAIN], "val": drawn[TRAIN : TRAIN + WATCHED]}
    marked = plain if arm == ARMS[2] else {name: with_words(part, rng) for name, part in plain.items()}
    tokenizer = fast_tokenizer(str(weights.fetch("mpnet")))
    loader = partial(text_loader, tokenizer=tokenizer, max_length=texts.longest, batch_size=BATCH)
    model = module()
    loaders = (loader(marked["train"], shuffle=True), loader(marked["val"]))
    options = {"tokenizer": tokenizer, "show": lrptrain.Show(class_names=list(CLASSES))}
    training = watched(model, loaders, guidance_of(arm), 1, 1, folder, **options)
    model.eval()
    own, others = (with_words(texts.test, np.random.default_rng([seed, 1]), other) for other in (False, True))
    sets = (own, texts.test, others)  # the words stand at the same places in both, and in every arm
    right = {name: answers(model, loader(part)) for name, part in zip(TESTED, sets, strict=True)}
    return {"corpus": corpus, "arm": arm, "seed": seed, **training.record, "right": right}


def with_words(texts: list[Example], rng: np.random.Generator, other: bool = False) -> list[Example]:
    """Every text with the word of its mood, or of the other one, at a random place outside of the marked words."""
    return [with_word(text, WORDS[1 - text.label if other else text.label], rng) for text in texts]


@torch.no_grad()
def answers(model: nn.Module, loader: DataLoader) -> list[int]:
    """Per text 1 where its mood is said, 0 where it is not."""
    right = [model(batch["input_ids"], batch["attention_mask"]).argmax(1) == batch["label"] for batch in loader]
    return torch.cat(right).int().tolist()


MEASURES = [Measure(name, lambda run, name=name: run["right"][name]) for name in TESTED]  # type: ignore[misc]
