"""One sink per logger, each fed with the same record."""

from collections.abc import Callable
from typing import Any

from lrptrain.loggers.budget import RecordWriter
from lrptrain.loggers.local import read_events, read_findings, read_samples, write_record
from lrptrain.loggers.record import EpochRecord, Highlight, Input, Picture
from lrptrain.loggers.tensorboard import log_to_tensorboard
from lrptrain.loggers.wandb import log_to_wandb

__all__ = [
    "EpochRecord",
    "Highlight",
    "Input",
    "Picture",
    "RecordWriter",
    "log_to_tensorboard",
    "log_to_wandb",
    "read_events",
    "read_findings",
    "read_samples",
    "send",
    "write_record",
]

_SINKS: dict[str, Callable[[Any, EpochRecord], None]] = {
    "WandbLogger": log_to_wandb,
    "TensorBoardLogger": log_to_tensorboard,
}


def send(logger: Any, record: EpochRecord) -> None:
    """Hand a record to the sink of a Lightning logger.

    A logger is known by the name of its class or of one it derives from, so that those of `pytorch_lightning` and of
    `lightning.pytorch` both are, and neither is imported. A logger without a sink is passed over. Errors of a logger
    are the caller's.

    Args:
        logger: One of `trainer.loggers`.
        record: What to log.
    """
    names = (base.__name__ for base in type(logger).__mro__)
    sink = next((_SINKS[name] for name in names if name in _SINKS), None)
    if sink is not None:
        sink(logger.experiment, record)
