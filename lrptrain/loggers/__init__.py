"""One sink per logger, each fed with the same record."""

from collections.abc import Callable
from typing import Any

from lrptrain.loggers.experiments import (
    is_summary_writer,
    is_wandb_run,
    media_to_wandb_run,
    media_to_writer,
    scalars_to_wandb_run,
    scalars_to_writer,
)
from lrptrain.loggers.local import (
    RecordWriter,
    read_class_maps,
    read_events,
    read_findings,
    read_samples,
    write_record,
)
from lrptrain.loggers.metrics import LoggedMetric
from lrptrain.loggers.other import log_to_other
from lrptrain.loggers.record import ClassMap, EpochRecord, Highlight, Input, Picture
from lrptrain.loggers.tensorboard import log_to_tensorboard
from lrptrain.loggers.wandb import define_metrics, log_to_wandb

__all__ = [
    "ClassMap",
    "EpochRecord",
    "Highlight",
    "Input",
    "LoggedMetric",
    "Picture",
    "RecordWriter",
    "is_logger",
    "log_to_other",
    "log_to_tensorboard",
    "log_to_wandb",
    "read_class_maps",
    "read_events",
    "read_findings",
    "read_samples",
    "send",
    "send_scalars",
    "write_record",
]

_SINKS: dict[str, Callable[[Any, EpochRecord], None]] = {
    "WandbLogger": log_to_wandb,
    "TensorBoardLogger": log_to_tensorboard,
}


def send_scalars(logger: Any, record: EpochRecord) -> None:
    """Make one point of a record's scalars.

    Args:
        logger: One of a Lightning trainer's `loggers`, as Lightning does after a validation; a W&B run or a
            `SummaryWriter`.
        record: The record that has the scalars.
    """
    if is_summary_writer(logger):
        scalars_to_writer(logger, record)
    elif is_wandb_run(logger):
        scalars_to_wandb_run(logger, record)
    else:
        if _known(logger) == "WandbLogger":
            define_metrics(logger.experiment, record)
        logger.log_metrics({**record.scalars, "epoch": record.epoch}, record.step)
        logger.save()


def send(logger: Any, record: EpochRecord) -> None:
    """Hand all but the scalars of a record to the sink of a logger.

    A Lightning logger is known by the name of its class or of one it derives from, so that those of `pytorch_lightning`
    and of `lightning.pytorch` both are, and neither is imported. Any other is given what its interface takes (see
    `log_to_other`). Errors of a logger are the caller's.

    Args:
        logger: As for `send_scalars`.
        record: What to log.
    """
    name = _known(logger)
    if is_summary_writer(logger):
        media_to_writer(logger, record)
    elif is_wandb_run(logger):
        media_to_wandb_run(logger, record)
    elif name is None:
        log_to_other(logger, record)
    else:
        _SINKS[name](logger.experiment, record)


def is_logger(logger: Any) -> bool:
    """Return whether scalars can be sent to an object."""
    return is_summary_writer(logger) or is_wandb_run(logger) or callable(getattr(logger, "log_metrics", None))


def _known(logger: Any) -> str | None:
    # Classes of both packages, `pytorch_lightning` and `lightning.pytorch`, have the same name.
    names = (base.__name__ for base in type(logger).__mro__)
    return next((name for name in names if name in _SINKS), None)
