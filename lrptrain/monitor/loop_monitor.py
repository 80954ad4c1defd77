"""A monitor for a training loop of the user's own: it is called, where a callback would be."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from lrptrain.extras import require
from lrptrain.loggers import EpochRecord, is_logger
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.draw import at_rest, draw_sample
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.monitor.results import MonitorResults
from lrptrain.trainers.context import Moment, Names, Output, TrainingContext
from lrptrain.trainers.discover import bare_model, device_of, logits_model
from lrptrain.trainers.messages import inform, is_first_process, warn
from lrptrain.trainers.naming import loader_sources
from lrptrain.trainers.progress import no_bar, shows_progress, tqdm_bar

GUIDANCE = 'lrptrain.Guidance("swap", swap=monitor.faults, optimizer=optimizer)'
"""How a swap of the faults is written in a loop."""


class Monitor(MonitorResults):
    """Explains a fixed sample of the validation data whenever it is asked to, and flags a wrong focus.

    It does what `lrptrain.callbacks.RelevanceMonitor` does, for your own loop, also under Accelerate or Fabric. What
    cannot work is an error at once. Training is bit-identical with and without it. With several processes, all of them
    make a monitor, and all call `evaluate`.

    Examples:
        >>> import torch, lrptrain
        >>> data = [(torch.rand(32, 1, 8, 8), torch.arange(32) % 2)]
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> options = {"judge": lrptrain.Judge(fail_on="relies"), "show": lrptrain.Show(class_names=["cat", "dog"])}
        >>> monitor = lrptrain.Monitor(model, data, "runs", **options, run=lrptrain.Run(batch_size=8))
        >>> for epoch in range(2):  # train for an epoch, then:
        ...     record = monitor.evaluate(epoch)
        >>> record.epoch, len(record.pictures)
        (1, 16)

    Args:
        model: The model, also wrapped or sharded; its forward gives logits `[batch, classes]` or an object with
            `.logits`. Or a method of a module that does.
        samples: The validation data: a DataLoader, a Dataset or an iterable of batches, as for `RelevanceMonitor`.
        folder: The folder below which the run gets its own, `<folder>/relevance/<run>`.
        loggers: Where scalars, pictures and findings go besides: runs of W&B or MLflow (or
            `lrptrain.loggers.MLflowRun(client, run_id)`), a `SummaryWriter`, Comet experiments, or Lightning's loggers.
        forward_context: The context of every forward pass, as `lambda: torch.autocast("cuda", torch.bfloat16)`.
        step: Runs the model on a batch as the loop does, `step(model, batch)`. None where batches have entries of the
            names of the forward's parameters, beside `label`.
        hyperparameters: Such as `{"lr": 1e-3}`: the page compares runs by them.
        **options: Those of `RelevanceMonitor`, but for `model`. Without a `budget` each call evaluates.

    Raises:
        TypeError: If there is no such option.
        ValueError: If an option, the model or the data cannot work, with what to change.
    """

    def __init__(
        self,
        model: nn.Module | Callable[..., Any],
        samples: Any,
        folder: str | Path = ".",
        *,
        loggers: Sequence[Any] = (),
        forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        step: Callable[[nn.Module, Any], object] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        require("pyarrow", "monitor")
        self.config = MonitorConfig.of(options.pop("kind", type(self).__name__), options)
        self.core = MonitorCore(self.config, inform, warn)
        held: Any = model.__self__ if inspect.ismethod(model) else model
        module = bare_model(held, takes_shards=True)
        self._model = logits_model(module if held is model else model)
        self._root_dir = folder
        self._loggers = _checked(loggers)
        self._forward_context = forward_context
        self._has_step = step is not None
        self._hyperparameters = dict(hyperparameters or {})
        self._name_sources = [*loader_sources(samples), module]
        draw_sample(self.core, self._context(0, 0), samples, None if step is None else partial(step, module))
        self.core.planner.clock.start(restart=True)

    def evaluate(self, epoch: int, step: int | None = None) -> EpochRecord | None:
        """Explain the sample under the current weights, find and test, and write the record.

        All processes must call it at the same time.

        Args:
            epoch: The number of the epoch.
            step: The number of optimiser steps so far, which loggers show; None for that of the epoch.

        Returns:
            What was learned, with pictures and texts in the first process; None if the evaluation failed, or if
            `every_n_epochs` or the `budget` pass this call over.

        Raises:
            FindingError: If there is a finding that `fail_on` forbids, in `fail_after` evaluations in a row.
        """
        with at_rest(self._model):
            record = self.core.evaluate(self._context(epoch, epoch if step is None else step))
        self.core.count_failures()
        self.core.judging.raise_if_forbidden()
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues, for the loop's checkpoint."""
        return self.core.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run, in its own folder where that is still free to continue with; see `state_dict`."""
        self.core.load_state_dict(state_dict)

    def close(self) -> None:
        """Note that training has come to its end; going on from an earlier checkpoint is a branch from now on.

        The weights as they are now are evaluated first, with all samples, unless the last evaluation was of them: load
        those that are kept before. All processes must call it at the same time.

        Raises:
            FindingError: If there is a `fail_on`, and the last evaluation found what it forbids, could not tell or
                failed, or there was none.
        """
        with at_rest(self._model):
            self.core.evaluate_kept(self._context(0, 0))  # the moment is that of the last call of `evaluate`
        self.core.count_failures()
        self.core.end()
        self.core.raise_if_failed()

    def __enter__(self) -> "Monitor":
        """Return the monitor, whose run ends with the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run, unless the block was left by an error: then it can continue."""
        if kind is None:
            self.close()

    def _context(self, epoch: int, step: int) -> TrainingContext:
        is_first = is_first_process()
        progress = tqdm_bar if is_first and shows_progress() else no_bar
        return TrainingContext(
            model=self._model,
            module=self._model,
            device=device_of(self._model),
            moment=Moment(epoch, step),
            output=Output(self._root_dir, is_first, progress, self._loggers),
            names=Names(
                sources=self._name_sources,
                hyperparameters=[self._hyperparameters],
                step="step=" if self._has_step else "the loop",
                step_hint="Pass step=lambda model, batch: ..., which calls the model as the loop does",
                guidance=GUIDANCE,
            ),
            forward_context=self._forward_context,
        )


def _checked(loggers: Sequence[Any]) -> tuple[Any, ...]:
    for each in loggers:
        if not is_logger(each):
            raise ValueError(
                f"loggers= has a {type(each).__name__}: give what wandb.init() or mlflow.start_run() returns, "
                "lrptrain.loggers.MLflowRun(client, run_id), a SummaryWriter, a Comet experiment, or one of "
                "Lightning's loggers"
            )
    return tuple(loggers)
