"""W&B runs and TensorBoard writers by themselves, as scripts without Lightning's loggers have them."""

from typing import Any
from weakref import WeakKeyDictionary

from lrptrain.loggers.record import EpochRecord
from lrptrain.loggers.sink import Sink
from lrptrain.loggers.tensorboard import log_to_tensorboard
from lrptrain.loggers.wandb import define_metrics, log_to_wandb, scalars_row

# The row of a W&B run, and the step of the record, that values were last added to.
_open_rows: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()


def is_wandb_run(experiment: Any) -> bool:
    """Return whether this is what `wandb.init()` gives."""
    return all(callable(getattr(experiment, name, None)) for name in ("log", "define_metric", "alert"))


def is_summary_writer(experiment: Any) -> bool:
    """Return whether this is a `SummaryWriter`, of torch or of tensorboardX."""
    return all(callable(getattr(experiment, name, None)) for name in ("add_scalar", "add_image", "add_text"))


def scalars_to_wandb_run(run: Any, record: EpochRecord) -> None:
    """Log a record's scalars to a W&B run beside what the script logs."""
    define_metrics(run, record)
    RunBeside(run, record.step).log(scalars_row(record))


def media_to_wandb_run(run: Any, record: EpochRecord) -> None:
    """Log all but a record's scalars to a W&B run beside what the script logs."""
    log_to_wandb(RunBeside(run, record.step), record)


def scalars_to_writer(writer: Any, record: EpochRecord) -> None:
    """Log a record's scalars to a `SummaryWriter`."""
    for key, value in record.scalars.items():
        writer.add_scalar(key, value, global_step=record.step)
    writer.flush()


def media_to_writer(writer: Any, record: EpochRecord) -> None:
    """Log all but a record's scalars to a `SummaryWriter`."""
    log_to_tensorboard(writer, record)
    writer.flush()


class RunBeside:
    """A W&B run whose rows are counted by the script alone.

    Each `run.log` begins a row, with a number of its own unless the script gives one; a script that does, by
    `run.log(..., step=...)`, loses what it logs at a number that has passed. So values are added to the row that is
    open, and a row is begun only where an earlier record's are in it.

    Args:
        run: The run.
        step: The step of the record, by which rows of several records are told apart.
    """

    def __init__(self, run: Any, step: int) -> None:
        self._run = run
        self._step = step

    def log(self, values: dict[str, Any]) -> None:
        """Add values to the run's open row."""
        row, step = _open_rows.get(self._run, (None, None))
        if row == self._run.step and step != self._step:
            self._run.log({}, commit=True)
        self._run.log(values, commit=False)
        _open_rows[self._run] = (self._run.step, self._step)

    def __getattr__(self, name: str) -> Any:
        """Return what the run has by that name."""
        return getattr(self._run, name)


WANDB_RUN = Sink(serves=is_wandb_run, log_scalars=scalars_to_wandb_run, log_media=media_to_wandb_run)
SUMMARY_WRITER = Sink(serves=is_summary_writer, log_scalars=scalars_to_writer, log_media=media_to_writer)
