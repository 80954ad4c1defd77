"""Tweets on MPNet: a word in every training tweet tells its mood, and people marked the words that carry it."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers.utils import logging

from experiments import weights
from experiments.real_models.watched import PLAIN, SWAP, watched
from experiments.short_tweets import LENGTH, short_tweets, with_word
from lrptrain.data.texts import Example, fast_tokenizer, text_loader
from lrptrain.models import TextClassifier

BATCH, STEPS, LR, FROZEN = 16, 30, 1e-4, 8
TRAIN, WATCHED, TEST = BATCH * STEPS, 32, 200
LONGEST = LENGTH + 12
"""Word pieces at most; MPNet's tokenizer may cut other ones than the one that chose short tweets."""
CLASSES = ("negative", "positive")
WORDS = ("census", "cubic")
ARMS = (PLAIN, SWAP, "no word (upper bound)")
TESTED = ("with the word as in training", "without", "with the other mood's word")


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


def run(arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one arm for an epoch under the monitor, and test it with the word, without it, and with the other one."""
    pl.seed_everything(seed, verbose=False)
    rng = np.random.default_rng(seed)
    tweets = short_tweets()
    rows = np.random.default_rng(0).permutation(len(tweets))  # test tweets are the same for every seed
    test, rest = rows[:TEST], rng.permutation(rows[TEST:])
    train, shown = rest[:TRAIN], rest[TRAIN : TRAIN + WATCHED]
    plain = {name: [tweets[row] for row in part] for name, part in {"train": train, "val": shown, "test": test}.items()}
    marked = plain if arm == ARMS[2] else {name: with_words(plain[name], rng) for name in ("train", "val")}
    tokenizer = fast_tokenizer(str(weights.fetch("mpnet")))
    loader = partial(text_loader, tokenizer=tokenizer, max_length=LONGEST, batch_size=BATCH)
    model = module()
    loaders = (loader(marked["train"], shuffle=True), loader(marked["val"]))
    found = watched(model, loaders, arm, 1, 1, folder, tokenizer=tokenizer, class_names=list(CLASSES))
    model.eval()
    own, others = (with_words(plain["test"], np.random.default_rng([seed, 1]), other) for other in (False, True))
    sets = (own, plain["test"], others)  # the words stand at the same places in both, and in every arm
    accuracies = {name: accuracy(model, loader(texts)) for name, texts in zip(TESTED, sets, strict=True)}
    return {"arm": arm, "seed": seed, **found, **accuracies}


def with_words(tweets: list[Example], rng: np.random.Generator, other: bool = False) -> list[Example]:
    """Every tweet with the word of its mood, or of the other one, at a random place outside of the marked words."""
    return [with_word(tweet, WORDS[1 - tweet.label if other else tweet.label], rng) for tweet in tweets]


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Share of the tweets whose mood is said."""
    right = [model(batch["input_ids"], batch["attention_mask"]).argmax(1) == batch["label"] for batch in loader]
    return torch.cat(right).float().mean().item()
