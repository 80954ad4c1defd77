"""Samples of a loader's batches, drawn evenly over the classes."""

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from lrptrain.batch import BatchAdapter, Sample, read_batch
from lrptrain.batch.checks import Limits
from lrptrain.batch.task import CLASSES, Task
from lrptrain.monitor.annotated import survey, without_annotations
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.terminal import WrappedWarning


def draw_samples(
    loader: Iterable[Any],
    max_samples: int,
    seed: int,
    batch_adapter: BatchAdapter | None = None,
    task: Task = CLASSES,
) -> list[Sample]:
    """Return samples drawn as evenly over the classes as they allow; the seed fixes which.

    As in the monitor, samples with values that cannot be used (pixels that are not finite, a mask of other values or
    another shape) are left out, and annotations that are misread as a whole are not used; a warning says so.
    """
    # The monitor's own way to draw, of which nothing is known before the last batch: classes may come in any order.
    sample = ValidationSample(max_samples, seed, Limits())
    # A loader takes a seed from the global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        for batch in loader:
            sample.add_batch(read_batch(batch, batch_adapter, task), math.inf)
    samples = sample.finish()
    _say_left_out(sample.left_out, len(samples))
    if not samples:
        raise ValueError("the loader has no sample")
    return _with_annotations_that_are_read(samples)


def _say_left_out(problems: Mapping[int | str, str], remaining: int) -> None:
    if not problems:
        return
    sample_id, problem = next(iter(problems.items()))
    if not remaining:
        raise ValueError(f"no sample can be used. The first of them, {sample_id}: {problem}")
    others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    warnings.warn(
        f"the sample {sample_id}{others} cannot be used and is left out: {problem}", WrappedWarning, stacklevel=3
    )


def _with_annotations_that_are_read(samples: list[Sample]) -> list[Sample]:
    """Return the samples, without annotations where 255 was certainly meant as evidence."""
    annotations = survey(samples)
    if annotations.misread:
        warnings.warn(f"{annotations.misread}. The annotations are not used", WrappedWarning, stacklevel=3)
        return without_annotations(samples)
    if annotations.remark:
        warnings.warn(annotations.remark, WrappedWarning, stacklevel=3)
    return samples
