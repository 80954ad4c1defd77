"""The sample of a whole validation set, drawn in one pass before training."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.batch import Sample, batch_length, collate, model_inputs
from lrptrain.batch.call import IMAGES, parameters_of
from lrptrain.batch.forms import as_mapping
from lrptrain.monitor.loader_pass import PlacedBatch, has_places, read_once
from lrptrain.monitor.model_input import InputListener, check_bytes, copied
from lrptrain.monitor.monitor import MonitorCore, first_logits
from lrptrain.monitor.strategy_answers import check_answers
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.processes import gather, in_every_process


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and leave everything as it was, also the random state."""
    with preserved(model):
        model.eval()
        yield


def draw_sample(
    core: MonitorCore, context: TrainingContext, samples: Any, step: Callable[[Any], object] | None = None
) -> None:
    """Draw a monitor's sample, and try everything once with its first batch; an error is one in all processes.

    All processes must call it at the same time. The model and the random state stay as they were. Without a `step`, the
    entries of a batch go to the parameters of their names.
    """
    with at_rest(context.module):
        samples_here = _drawn(core, context, samples, step)
    if not is_sharded(context.module):
        return
    # One for all: processes of a tensor parallel group must be given the same.
    first = next(each for each in gather(samples_here[:1]) if each)
    check_answers(context.model, model_inputs(context.model, collate(first, context.device)), context.forward_context)


def _drawn(
    core: MonitorCore, context: TrainingContext, samples: Any, step: Callable[[Any], object] | None
) -> list[Sample]:
    core.start_draw()
    if is_sharded(context.module) and not has_places(samples):
        # Under tensor parallel several processes read the same, and each sample would count for as many.
        raise ValueError(f"{core.config.title} needs a DataLoader or a Dataset of a sharded model's samples, no stream")
    # Outside of what is done in every process: it has a collective of its own.
    batches = read_once(samples, core.config.run.batch_size)
    in_every_process(lambda: _add_all(core, context, batches, step))
    # Annotations that cannot be used end it here, before the first step: they are no failure that training survives.
    samples_here = core.reader.finish(lambda activity, error: None)
    core.raise_if_misread()
    if not any(gather(len(samples_here))):
        raise ValueError(f"{core.config.title} was given no samples that it can use, so that it has nothing to explain")
    return samples_here


def _add_all(
    core: MonitorCore,
    context: TrainingContext,
    batches: Iterator[PlacedBatch],
    step: Callable[[Any], object] | None,
) -> None:
    checked, is_told = False, step is not None
    for placed in batches:
        listener = None if step is None else _heard(context, placed.batch, step)
        if not checked:
            if listener is not None and core.reader.is_by_name(context, placed.batch, listener):
                step = listener = None  # and need not be run for each batch
            contract_batch = core.reader.check(context, placed.batch, listener)
            if not is_told:
                _check_bytes(core, context, placed.batch, contract_batch)
            try:
                core.check_first_batch(context, placed.batch, contract_batch)
            except (TypeError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError) as error:
                # Of the errors of torch, those that are nothing more special: a tensor of another shape than expected.
                if listener is not None or (isinstance(error, RuntimeError) and type(error) is not RuntimeError):
                    raise
                if first_logits(context, contract_batch) is not None:
                    raise ValueError(
                        f"the model answers without gradients, and fails with them in evaluation mode, which maps need "
                        f"({describe_error(error)})"
                    ) from error
                raise ValueError(
                    f"the model fails on a batch as {core.config.title} gives it ({type(error).__name__}: {error}): "
                    f"say how it is called, as by step=lambda model, batch: model({_first_of(placed.batch, context)})"
                ) from error
            checked = batch_length(contract_batch) > 0
        core.reader.sample.add_batch(core.reader.read(context, placed.batch, listener), indices=placed.places)


def _check_bytes(core: MonitorCore, context: TrainingContext, batch: Any, contract_batch: dict[str, Any]) -> None:
    """Reject images of bytes that the model does not take: the loop makes something of them, and none can know what."""
    adapter = core.config.batch_adapter
    columns = as_mapping(batch if adapter is None else adapter(batch))
    name = next((each for each in IMAGES if str(getattr(columns.get(each), "dtype", "")).endswith("uint8")), "")
    if name not in contract_batch:
        return
    sent = {key: x.to(context.device) if isinstance(x, Tensor) else x for key, x in contract_batch.items()}
    given = model_inputs(context.model, {**sent, name: sent[name].to(torch.uint8)})
    try:
        listener = _heard(context, given, lambda x: context.model(**x) if isinstance(x, dict) else context.model(x))
    except Exception as error:
        given_as = f"batch[{name!r}]" if isinstance(batch, Mapping) and name in batch else _first_of(batch, context)
        raise ValueError(
            f"{name!r} holds bytes, on which the model fails ({type(error).__name__}: {error}): say what it is given, "
            f"as by step=lambda model, batch: model({given_as}.float() / 255)"
        ) from error
    check_bytes(context.model, sent, listener, core.config.title)


def _first_of(batch: Any, context: TrainingContext) -> str:
    """Return how a step would write what it gives the model."""
    if isinstance(batch, Mapping):
        known = next((name for name in parameters_of(context.model) if name in batch), None)
        return "batch" if known is None else f"batch[{known!r}]"
    return "batch[0]" if isinstance(batch, tuple | list) else "batch"


def _heard(context: TrainingContext, batch: Any, step: Callable[[Any], object]) -> InputListener:
    """Return what a step gives the model; it is given a copy of the batch, which it may change."""
    given = copied(batch)
    listener = InputListener(context.model, given, False, context.module)
    try:
        with torch.no_grad(), context.forward_context():
            step(given)
    finally:
        listener.stop()
    return listener
