"""Small models that have learnt a planted shortcut beside the content, and held-out samples with and without it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader

from experiments.default_method import images, texts
from experiments.minilm import network
from experiments.short_tweets import inputs, tokenizer
from experiments.vision import MEAN, STD
from lrptrain.batch.content import content_tokens

CORRELATION = 0.9
"""Share of the training samples that show their own class's shortcut; all of the explained ones do."""
COUNT = 48
"""Held-out samples that are explained."""
STEPS = {"images": 160, "texts": 60}
LEARNING_RATE = {"images": 2e-3, "texts": 3e-4}
BLACK = tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True))
PATCH = 4


@dataclass(frozen=True)
class Samples:
    """Held-out samples.

    Attributes:
        inputs: What the model is given.
        label: Their classes.
        usable: Patches or words: no special token, no padding.
        place: Where the shortcut is planted.
    """

    inputs: Any
    label: Int[Tensor, " n"]
    usable: Bool[Tensor, "n tokens"]
    place: Bool[Tensor, "n tokens"]


@dataclass(frozen=True)
class Trained:
    """A model, and what it is explained on.

    Attributes:
        model: In evaluation mode.
        shown: Samples with the shortcut of their own class.
        clean: The same samples without it.
    """

    model: nn.Module
    shown: Samples
    clean: Samples


def trained(task: str, seed: int) -> Trained:
    """Train on samples with the shortcut; explain others."""
    torch.manual_seed(seed)
    make = {"images": _images, "texts": _texts}[task]
    model, batches, shown, clean = make(seed)
    _fit(model, batches, STEPS[task], LEARNING_RATE[task])
    return Trained(model, shown, clean)


def logits(model: nn.Module, inputs: Any) -> Tensor:
    """The model's output."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    found: Tensor = getattr(output, "logits", output)
    return found


def accuracy(model: nn.Module, samples: Samples) -> float:
    """Share of the samples that the model reads rightly."""
    with torch.no_grad():
        return (logits(model, samples.inputs).argmax(1) == samples.label).float().mean().item()


def _fit(model: nn.Module, batches: Iterator[tuple[Any, Tensor]], steps: int, rate: float) -> None:
    """AdamW with a one-cycle schedule and gradients of norm 1."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    model.train()
    for _ in range(steps):
        inputs, label = next(batches)
        F.cross_entropy(logits(model, inputs), label).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.eval()


def _repeated(loader: DataLoader, read: Callable[[Any], Any]) -> Iterator[tuple[Any, Tensor]]:
    while True:
        for batch in loader:
            yield read(batch), batch["label"]


def _images(seed: int) -> tuple[nn.Module, Iterator[tuple[Any, Tensor]], Samples, Samples]:
    """Digits with a tag of 4 x 4 pixels, in one of the corners: one patch; the small pre-trained ViT's first blocks."""
    train, _, _ = images.loaders(CORRELATION, seed)
    _, shown, clean = images.loaders(1.0, seed)
    first, second = ({name: loader.dataset[:COUNT][name] for name in ("image", "label")} for loader in (shown, clean))
    changed = (first["image"] != second["image"]).any(1)
    place = F.max_pool2d(changed[:, None].float(), PATCH)[:, 0].flatten(1) > 0
    usable = torch.ones_like(place)
    with_tag = Samples(first["image"], first["label"], usable, place)
    without = Samples(second["image"], second["label"], usable, place)
    return images.network(), _repeated(train, lambda batch: batch["image"]), with_tag, without


def _texts(seed: int) -> tuple[nn.Module, Iterator[tuple[Any, Tensor]], Samples, Samples]:
    """Tweets with a word of their class planted at a random place; MiniLM's first blocks."""
    train, _, _ = texts.loaders(CORRELATION, seed)
    _, shown, clean = texts.loaders(1.0, seed)
    rows = np.random.default_rng(seed).permutation(len(shown.dataset))[:COUNT]
    both = [loader.collate_fn([loader.dataset[row] for row in rows]) for loader in (shown, clean)]
    words = texts.WORDS[seed % len(texts.WORDS)]
    with_word, without = (Samples(inputs(b), b["label"], _words(b), _planted(b, words)) for b in both)
    return network(seed), _repeated(train, inputs), with_word, without


def _words(batch: Any) -> Bool[Tensor, "n tokens"]:
    return content_tokens(inputs(batch))


def _planted(batch: Any, words: tuple[str, ...]) -> Bool[Tensor, "n tokens"]:
    """Where the pieces of the own class's word stand."""
    place = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    for row, label in enumerate(batch["label"].tolist()):
        pieces = torch.tensor(tokenizer()(words[label], add_special_tokens=False)["input_ids"])
        windows = batch["input_ids"][row].unfold(0, len(pieces), 1)
        for start in (windows == pieces).all(1).nonzero().flatten().tolist():
            place[row, start : start + len(pieces)] = True
    return place
