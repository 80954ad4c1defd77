"""One sink per logger, each fed with the same record; a module of this folder registers those that it has.

Examples:
    >>> from lrptrain.loggers import *
    >>> record = EpochRecord(epoch=0, step=32, scalars={"relevance/accuracy": 0.5}, samples={"sample_id": [1, 2]})
    >>> folder = "runs/relevance/mine"
    >>> write_record(folder, record)
    >>> [event["scalars"] for event in read_events(folder)]
    [{'relevance/accuracy': 0.5}]
    >>> read_samples(folder)["sample_id"], read_findings(folder), read_class_maps(folder)
    ([1, 2], [], {})
    >>> class Printer:
    ...     def show(self, record):
    ...         print(record.scalars)
    >>> register(Sink(serves=lambda it: isinstance(it, Printer), log_scalars=Printer.show, log_media=Printer.show))
    >>> is_logger(Printer()), what_is_sent(Printer(), record)
    (True, [])
    >>> send_scalars(Printer(), record)
    {'relevance/accuracy': 0.5}
"""

import importlib
import math
import pkgutil
from dataclasses import replace
from typing import Any

from lrptrain.loggers.local import RecordWriter, read_class_maps, read_events, read_findings, read_samples, write_record
from lrptrain.loggers.metrics import LoggedMetric
from lrptrain.loggers.mlflow import MLflowRun
from lrptrain.loggers.record import ClassMap, EpochRecord, Highlight, Input, Picture
from lrptrain.loggers.record_tables import MOST_ROWS, is_cut, scores_table, with_few_scores, with_main_scalars
from lrptrain.loggers.sink import Sink, register, sink_of

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
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
    "read_class_maps",
    "read_events",
    "read_findings",
    "read_samples",
    "register",
    "send",
    "send_scalars",
    "what_is_sent",
    "write_record",
]


def send_scalars(logger: Any, record: EpochRecord) -> None:
    """Make one point of a record's scalars; scores of many classes come with `send`, as a table, where there are any.

    Args:
        logger: A logger of Lightning, a W&B run, a `SummaryWriter`, a run of MLflow, a Comet experiment, or what else a
            registered `Sink` serves.
        record: The record that has the scalars.
    """
    sink = _existing(logger)
    # What is not known makes no point: some loggers would draw it as a 0.
    known = {key: value for key, value in record.scalars.items() if not math.isnan(value)}
    record = replace(record, scalars=known)
    if not (sink.has_all or record.all_scalars):
        record = with_main_scalars(record)
    sink.log_scalars(logger, with_few_scores(record) if sink.has_tables else record)


def send(logger: Any, record: EpochRecord) -> None:
    """Hand all but the scalars of a record to the sink of a logger; an object that is no logger is passed over.

    Errors of a logger are the caller's.
    """
    if (sink := sink_of(logger)) is not None:
        sink.log_media(logger, record)


def is_logger(logger: Any) -> bool:
    """Return whether scalars can be sent to an object."""
    return sink_of(logger) is not None


def what_is_sent(logger: Any, record: EpochRecord) -> list[str]:
    """Return what a user should know of a logger that does not get everything as it is, in lines; none otherwise."""
    sink = _existing(logger)
    name = type(logger).__name__
    lines = []
    if lacks := sink.lacks(logger):
        lines.append(f"{name} gets the scalars, but has no place for {lacks}: they are in the run's folder")
    if sink.has_tables and scores_table(record)["score"]:
        # Without their number, which differs from epoch to epoch: a line is said once.
        lines.append(f"{name} gets the scores of single classes as a table, {record.prefix}/scores_table")
    if sink.has_tables and is_cut(record):
        lines.append(f"{name} gets the first {MOST_ROWS:,} of these scores: all are in the run's folder")
    return lines


def _existing(logger: Any) -> Sink:
    sink = sink_of(logger)
    if sink is None:
        raise TypeError(f"{type(logger).__name__} is no logger that a sink serves")
    return sink
