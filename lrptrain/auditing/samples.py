"""Samples of a loader's batches: drawn evenly over the classes, or the first ones."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from lrptrain.batch import BatchAdapter, Sample, batch_length, read_batch, take
from lrptrain.batch.task import CLASSES, Task
from lrptrain.monitor.stratified_sample import ValidationSample


def draw_samples(
    loader: Iterable[Any],
    max_samples: int,
    seed: int,
    batch_adapter: BatchAdapter | None = None,
    task: Task = CLASSES,
) -> list[Sample]:
    """Return samples drawn as evenly over the classes as they allow; the seed fixes which.

    Args:
        loader: Batches in the contract of `lrptrain.batch`.
        max_samples: How many samples.
        seed: Seed of the draw.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What the labels mean.

    Raises:
        LookupError: If there is no sample.
        ValueError: If a batch cannot be read.
    """
    # The monitor's own way to draw, of which nothing is known before the last batch: classes may come in any order.
    sample = ValidationSample(max_samples, seed)
    # A loader takes a seed from the global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        for batch in loader:
            sample.add_batch(read_batch(batch, batch_adapter, task), math.inf)
    samples = sample.finish()
    if not samples:
        raise LookupError("the loader has no sample")
    return samples


def first_samples(
    loader: Iterable[Any],
    max_samples: int,
    seed: int,
    batch_adapter: BatchAdapter | None = None,
    task: Task = CLASSES,
) -> list[Sample]:
    """Return the first samples of a loader; the seed fixes its shuffling.

    Raises:
        ValueError: If a batch cannot be read.
    """
    samples: list[Sample] = []
    # Shuffling takes its seed from the global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for batch in loader:
            columns = read_batch(batch, batch_adapter, task)
            samples += [take(columns, row, len(samples) + row) for row in range(batch_length(columns))]
            if len(samples) >= max_samples:
                break
    return samples[:max_samples]
