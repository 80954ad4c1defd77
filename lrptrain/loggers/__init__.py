"""One sink per logger, each fed with the same record."""

import math
from dataclasses import replace
from typing import Any

from lrptrain.loggers.comet import COMET_EXPERIMENT, COMET_LOGGER
from lrptrain.loggers.local import (
    RecordWriter,
    read_class_maps,
    read_events,
    read_findings,
    read_samples,
    write_record,
)
from lrptrain.loggers.metrics import LoggedMetric
from lrptrain.loggers.mlflow import MLFLOW, MLflowRun
from lrptrain.loggers.other import OTHER, log_to_other
from lrptrain.loggers.record import ClassMap, EpochRecord, Highlight, Input, Picture
from lrptrain.loggers.record_tables import MOST_ROWS, is_cut, scores_table, with_few_scores
from lrptrain.loggers.sink import Sink
from lrptrain.loggers.tensorboard import SUMMARY_WRITER, TENSORBOARD_LOGGER
from lrptrain.loggers.wandb import WANDB_LOGGER, WANDB_RUN

__all__ = [
    "SINKS",
    "ClassMap",
    "EpochRecord",
    "Highlight",
    "Input",
    "LoggedMetric",
    "MLflowRun",
    "Picture",
    "RecordWriter",
    "Sink",
    "is_logger",
    "log_to_other",
    "read_class_maps",
    "read_events",
    "read_findings",
    "read_samples",
    "send",
    "send_scalars",
    "what_is_sent",
    "write_record",
]

SINKS: tuple[Sink, ...] = (
    WANDB_LOGGER,
    WANDB_RUN,
    TENSORBOARD_LOGGER,
    SUMMARY_WRITER,
    MLFLOW,
    COMET_LOGGER,
    COMET_EXPERIMENT,
    OTHER,
)
"""The kinds of loggers; the first one that serves an object is its sink."""


def send_scalars(logger: Any, record: EpochRecord) -> None:
    """Make one point of a record's scalars; scores of many classes come with `send`, as a table, where there are any.

    Args:
        logger: What one of `SINKS` serves: a logger of Lightning, a W&B run, a `SummaryWriter`, a run of MLflow, a
            Comet experiment.
        record: The record that has the scalars.
    """
    sink = _sink_of(logger)
    # What is not known makes no point: some loggers would draw it as a 0.
    known = {key: value for key, value in record.scalars.items() if not math.isnan(value)}
    record = replace(record, scalars=known)
    sink.log_scalars(logger, with_few_scores(record) if sink.has_tables else record)


def send(logger: Any, record: EpochRecord) -> None:
    """Hand all but the scalars of a record to the sink of a logger; an object that is no logger is passed over.

    Errors of a logger are the caller's.
    """
    if is_logger(logger):
        _sink_of(logger).log_media(logger, record)


def is_logger(logger: Any) -> bool:
    """Return whether scalars can be sent to an object."""
    return any(sink.serves(logger) for sink in SINKS)


def what_is_sent(logger: Any, record: EpochRecord) -> list[str]:
    """Return what a user should know of a logger that does not get everything as it is, in lines; none otherwise."""
    sink = _sink_of(logger)
    name = type(logger).__name__
    lines = []
    if sink.lacks(logger):
        lines.append(
            f"{name} gets the scalars, but has no place for {sink.lacks(logger)}: they are in the run's folder"
        )
    if sink.has_tables and scores_table(record)["score"]:
        # Without their number, which differs from epoch to epoch: a line is said once.
        lines.append(f"{name} gets the scores of single classes as a table, {record.prefix}/scores_table")
    if sink.has_tables and is_cut(record):
        lines.append(f"{name} gets the first {MOST_ROWS:,} of these scores: all are in the run's folder")
    return lines


def _sink_of(logger: Any) -> Sink:
    return next(sink for sink in SINKS if sink.serves(logger))
