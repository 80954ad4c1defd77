"""The tweets of `texts`, and the MPNet that learns their moods."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from experiments.benchmark import texts
from experiments.benchmark.cases import Case
from experiments.benchmark.images import Columns
from experiments.real_models.words import MORE, module
from experiments.weights import fetch
from lrptrain.data.texts import collate_texts, fast_tokenizer

LR, BATCH, TRAIN, STEPS, HELD_OUT = 1e-4, 16, 480, 30, 64

tokenizer = cache(lambda: fast_tokenizer(str(fetch("mpnet"))))


def network(seed: int) -> nn.Module:
    """All of MPNet, of which the last four blocks and the head are trained."""
    torch.manual_seed(seed)
    return module().net


def head(net: Any) -> nn.Module:
    """What reads the embedding."""
    made: nn.Module = net.classifier.out_proj
    return made


def look(case: Case) -> dict[str, Any]:
    """What a monitor is told of the texts."""
    return {**texts.look(case), "tokenizer": tokenizer()}


def samples(case: Case, split: str, count: int, seed: int) -> Callable[[bool], Columns]:
    """Return what makes the tweets of a run; see `texts.samples`."""
    tokens = partial(collate_texts, tokenizer=tokenizer(), max_length=texts.LONGEST + MORE)
    return texts.samples(case, split, count, seed, tokens)
