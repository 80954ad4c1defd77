"""What a kind of logger has to say for itself: one `Sink` per kind, registered in the file of its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lrptrain.loggers.record import EpochRecord


@dataclass(frozen=True, kw_only=True)
class Sink:
    """How loggers of one kind are given a record.

    Errors of a logger are the caller's.

    Attributes:
        serves: Return whether an object is a logger of this kind.
        log_scalars: Make one point of a record's scalars.
        log_media: Log all but the scalars, as far as the logger has a place for it.
        has_tables: Whether scores of more than some tens of classes come as a table; else each of them is a scalar.
        has_all: Whether it gets all scalars, or else, unless `EpochRecord.all_scalars` asks for them, the main ones.
        lacks: Return what a logger has no place for, such as "pictures and texts"; "" where it takes all.
        is_last: Whether it is asked only where no other sink serves an object.
    """

    serves: Callable[[Any], bool]
    log_scalars: Callable[[Any, EpochRecord], None]
    log_media: Callable[[Any, EpochRecord], None]
    has_tables: bool = True
    has_all: bool = True
    lacks: Callable[[Any], str] = lambda logger: ""
    is_last: bool = False


_SINKS: list[Sink] = []


def register(sink: Sink) -> None:
    """Let a sink serve loggers of its kind."""
    _SINKS.append(sink)


def sink_of(logger: Any) -> Sink | None:
    """Return the sink that serves an object; None where it is no logger."""
    return next((sink for sink in sorted(_SINKS, key=lambda sink: sink.is_last) if sink.serves(logger)), None)


def lightning_sink(
    class_name: str,
    log_media: Callable[[Any, EpochRecord], None],
    log_scalars: Callable[[Any, EpochRecord], None] | None = None,
    has_all: bool = True,
) -> Sink:
    """Return the sink of a Lightning logger, whose `experiment` takes the media."""
    return Sink(
        serves=lambda logger: is_named(logger, class_name),
        log_scalars=log_scalars or scalars_to_lightning,
        log_media=lambda logger, record: log_media(logger.experiment, record),
        has_all=has_all,
    )


def is_named(logger: Any, class_name: str) -> bool:
    """Return whether an object's class, or one that it derives from, has a name.

    Lightning's loggers are known by it: those of `pytorch_lightning` and of `lightning.pytorch` have the same name, and
    neither package is imported.
    """
    return any(base.__name__ == class_name for base in type(logger).__mro__)


def has_methods(logger: Any, *names: str) -> bool:
    """Return whether an object has all of these methods."""
    return all(callable(getattr(logger, name, None)) for name in names)


def scalars_to_lightning(logger: Any, record: EpochRecord) -> None:
    """Make one point of a record's scalars, as Lightning does after a validation."""
    logger.log_metrics({**record.scalars, "epoch": record.epoch}, record.step)
    logger.save()
