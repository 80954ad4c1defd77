"""The monitor in the Trainer of transformers, as a callback."""

import logging
import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from torch import nn
from torch.utils.data import DataLoader

from lrptrain.extras import require
from lrptrain.loggers import is_logger
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.draw import at_rest, draw_sample
from lrptrain.monitor.loader_pass import can_be_read_once, has_places
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.monitor.results import MonitorResults
from lrptrain.monitor.unread_columns import WholeBatch, WholeBatches
from lrptrain.monitor.watched import Watcher, check_names, check_watchers
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.discover import find_model
from lrptrain.trainers.messages import inform, warn
from lrptrain.trainers.processes import rank_and_size
from lrptrain.trainers.transformers_trainer import calling_trainer, check_sharding, transformers_context

transformers = require("transformers", "transformers")
trainer_callback = require("transformers.trainer_callback", "transformers")
logger = logging.getLogger(__name__)


class RelevanceMonitorCallback(MonitorResults, transformers.TrainerCallback, trainer_callback.ExportableState):  # type: ignore[name-defined]
    """Explains a fixed sample of the evaluation set whenever a `transformers.Trainer` evaluates.

    It does what `lrptrain.callbacks.RelevanceMonitor` does, and writes to `<output_dir>/relevance/<run>/`. Training is
    bit-identical with and without it. Annotations (`mask`, `boxes`, `rationale`), `group` and `sample_id` come from the
    evaluation set itself, also where the Trainer drops columns. The tokenizer is that of the Trainer
    (`processing_class`), class names are those of `model.config.id2label`.

    Scalars are in `state.log_history`, and go with pictures, texts and findings to the loggers in `report_to`.
    `metric_for_best_model="relevance/..."` works, and so do `load_best_model_at_end` and early stopping. At the end the
    weights that the Trainer keeps are evaluated. A resumed training continues with the run of its checkpoint.

    Examples:
        >>> from lrptrain.callbacks import RelevanceMonitorCallback
        >>> callback = RelevanceMonitorCallback(max_samples=64)  # Trainer(..., eval_dataset=..., callbacks=[callback])
        >>> callback.config.max_samples
        64

    Args:
        eval_name: Of several evaluation sets, the name of the one to draw from; None for the first.
        model: The attribute path, on the Trainer's model, of the model or of the method that gives the logits.
        **options: Those of `RelevanceMonitor` by the same names.

    Attributes:
        config: The options.

    Raises:
        TypeError: If there is no such option.
        ValueError: At construction, or before the first step, with what to change.
        FindingError: When training has ended because of `fail_on`.
    """

    _made: ClassVar[WeakValueDictionary[str, "RelevanceMonitorCallback"]] = WeakValueDictionary()

    def __new__(cls, *, restores: str | None = None, **options: Any) -> "RelevanceMonitorCallback":
        """Return the callback that a checkpoint's state is of, where the Trainer asks for another one like it.

        With `restore_callback_states_from_checkpoint`, the Trainer makes callbacks anew of what a checkpoint holds,
        which has no room for a tokenizer, and forgets the one that the user has.
        """
        callback = cls._made.get(restores or "")
        return callback if callback is not None else super().__new__(cls)

    def __init__(
        self, *, eval_name: str | None = None, model: str | None = None, restores: str | None = None, **options: Any
    ) -> None:
        if restores is not None and hasattr(self, "core"):
            return
        require("pyarrow", "monitor")
        self.config = MonitorConfig.of(type(self).__name__, {"budget": 0.05, **options})
        self.eval_name = eval_name
        self.model = model
        self.core = MonitorCore(self.config, inform, warn)
        self._draws = True
        self._loggers: Sequence[Any] = ()
        self._made[self._key] = self

    @property
    def _key(self) -> str:
        """What tells callbacks of one name apart from others, in checkpoints."""
        return f"{self.config.run.name or ''}/{self.eval_name or ''}"

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the callback."""
        return {"args": {"restores": self._key}, "attributes": {"saved_state": self.core.state_dict()}}

    @property
    def saved_state(self) -> dict[str, Any]:
        """What a resumed run continues."""
        return self.core.state_dict()

    @saved_state.setter
    def saved_state(self, state: dict[str, Any]) -> None:
        self.core.load_state_dict(state)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: nn.Module, processing_class: Any = None, **kwargs: Any
    ) -> None:
        """Reject what cannot work, draw the sample, and continue with the run of a checkpoint."""
        trainer = calling_trainer(transformers.Trainer)
        if trainer is None:
            raise ValueError(f"{self.config.title} works with transformers.Trainer and what derives from it")
        check_sharding(trainer, self.config.title)
        check_names(
            [each.config.run.name for each in trainer.callback_handler.callbacks if isinstance(each, type(self))]
        )
        self.core.reset()
        self._draws = True
        self._loggers = ()
        saved = _saved_state(state.stateful_callbacks.get(type(self).__name__), self._key)
        if saved is not None and state.global_step > 0:  # at the start it is what this callback holds from before
            self.core.load_state_dict(saved)
        watched = args.metric_for_best_model or ""
        _, ours, key = watched.partition(f"{self.config.prefix}/")
        if ours:
            self.core.planner.evaluate_in_every_validation()
            way = (
                f"TrainingArguments(metric_for_best_model={watched!r}, greater_is_better={not args.greater_is_better})"
            )
            watcher = Watcher("metric_for_best_model", f"{ours}{key}", bool(args.greater_is_better), way)
            check_watchers([watcher], self.config, inform, warn)
        if self._will_evaluate(trainer, args):
            self._draw(trainer, self._context(trainer, args, state, model, processing_class))
        self.core.planner.clock.start(restart=True)

    def _context(self, trainer: Any, args: Any, state: Any, model: nn.Module, tokenizer: Any) -> TrainingContext:
        """Return what the Trainer knows now, with the loggers that records can be sent to."""
        context = transformers_context(trainer, args, state, model, tokenizer)
        if self.model is not None:
            context = replace(context, model=find_model(context.module, self.model))
        context = _logging_to(context, [each for each in context.output.loggers if is_logger(each)])
        if context.output.loggers:
            self._loggers = context.output.loggers
        return context

    def _will_evaluate(self, trainer: Any, args: Any) -> bool:
        """Return whether the Trainer evaluates; say so if it does not."""
        if trainer.eval_dataset is None:
            reason = "it has no eval_dataset"
        elif args.eval_strategy == "no":
            reason = "this Trainer has eval_strategy='no'; eval_strategy='epoch' evaluates after each epoch"
        elif can_be_read_once(self._dataset(trainer)):
            reason = (
                "its eval_dataset can be read only once, by the Trainer itself: let __iter__ begin anew at each call"
            )
        else:
            return True
        self.core.expect_nothing(reason)
        return False

    def _draw(self, trainer: Any, context: TrainingContext) -> None:
        samples = self._samples(trainer)
        step = None if is_sharded(context.module) else partial(self._step, trainer, context)
        draw_sample(self.core, context, samples, step)
        self._draws = False

    @staticmethod
    def _step(trainer: Any, context: TrainingContext, batch: Any) -> None:
        """Give a batch to the model as the Trainer does, with whatever its user has changed of that."""
        own = {name: batch[name] for name in batch.own} if isinstance(batch, WholeBatch) else batch
        try:
            trainer.prediction_step(context.module, own, prediction_loss_only=False)
        except Exception:  # of a Trainer that must have begun an evaluation: entries go by their names then
            logger.debug("the Trainer's own step could not be listened to", exc_info=True)

    def _samples(self, trainer: Any) -> Any:
        """Return the evaluation set with all its columns, as a loader."""
        name = self._set_name(trainer)
        dataset = self._dataset(trainer)
        prepared = list(trainer.accelerator._dataloaders)
        try:
            loader = trainer.get_eval_dataloader(name)
        finally:
            trainer.accelerator._dataloaders = prepared  # what it saves and loads is the training's alone
        # A datasets.Dataset comes without the columns that the model does not take; samples of others have all of them,
        # which the collator drops.
        columns = getattr(loader.dataset, "column_names", None)
        dropped = set() if columns is None else {*dataset.column_names} - {*columns}
        if not has_places(loader):
            # Of a stream that several processes share, each has what the Trainer gives it.
            if rank_and_size()[1] > 1 or not isinstance(loader, DataLoader):
                return loader
            return WholeBatches(dataset, None, loader.collate_fn, batch_size=trainer.args.eval_batch_size)
        full_dataset = dataset if columns is not None and len(dataset) == len(loader.dataset) else loader.dataset
        return WholeBatches(full_dataset, loader.batch_sampler, loader.collate_fn, dropped, loader.num_workers)

    def _dataset(self, trainer: Any) -> Any:
        """Return the evaluation set that is drawn from."""
        name = self._set_name(trainer)
        return trainer.eval_dataset if name is None else trainer.eval_dataset[name]

    def _set_name(self, trainer: Any) -> str | None:
        """Return which of several evaluation sets is drawn from; None if there is one alone."""
        datasets = trainer.eval_dataset
        names = list(datasets) if isinstance(datasets, dict) else []
        if self.eval_name is not None and self.eval_name not in names:
            raise ValueError(f"eval_name={self.eval_name!r} is not among the evaluation sets of this Trainer: {names}")
        return self.eval_name or next(iter(names), None)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: nn.Module,
        logs: MutableMapping[str, float],
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Evaluate when the metrics of an evaluation are logged, and put the scalars among them.

        Not in `on_evaluate`: there a callback that comes earlier, such as early stopping, would not see them.
        """
        trainer = calling_trainer(transformers.Trainer)
        name = self._set_name(trainer)
        prefix = "eval" if name is None else f"eval_{name}"
        # Without a sample, a training has said at its start that nothing will be evaluated.
        if f"{prefix}_runtime" not in logs or (trainer.is_in_train and self._draws) or trainer.eval_dataset is None:
            return
        if not trainer.is_in_train:  # a validation by itself: of other weights perhaps, with a record of its own
            self.core.reset()
            self._draws = True
        context = self._context(trainer, args, state, model, processing_class)
        if self._draws:
            self._draw(trainer, context)
        with at_rest(context.module):
            record = self.core.evaluate(context)
        self.core.count_failures()
        if record is not None:
            self._note(state, state.global_step)
        if not trainer.is_in_train:
            self.core.end_validation()
            self.core.raise_if_failed(is_trained=False)
        self._show(prefix, args, logs)

    def _note(self, state: Any, step: int) -> None:
        """Put the scalars that are known into the Trainer's history, which it saves as JSON."""
        known = {key: value for key, value in self.core.recorder.scalars.items() if not math.isnan(value)}
        state.log_history.append({**known, "epoch": state.epoch, "step": step})

    def _show(self, prefix: str, args: Any, metrics: MutableMapping[str, float]) -> None:
        """Show, among the metrics, the scalar for best checkpoints alone: searches add up all metrics."""
        watched = args.metric_for_best_model or ""
        key = watched.removeprefix("eval_").removeprefix(f"{prefix.removeprefix('eval_')}_")
        if key.startswith(f"{self.config.prefix}/"):
            # What is not known is no best value: of a model that guesses, or where the evaluation has failed.
            metrics[f"eval_{watched.removeprefix('eval_')}"] = self.core.recorder.scalars.get(key, float("nan"))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop training if a finding demands it: its checkpoint is written before the error."""
        if self.core.judging.is_forbidden():
            control.should_training_stop = True

    def on_train_end(
        self, args: Any, state: Any, control: Any, model: nn.Module, processing_class: Any = None, **kwargs: Any
    ) -> None:
        """Note the end of the run, and raise an error if a finding ended training, or none was looked for.

        The weights that the Trainer leaves are evaluated: with `load_best_model_at_end` it has loaded them by now.
        """
        trainer = calling_trainer(transformers.Trainer)
        context = self._context(trainer, args, state, model, processing_class)
        # The Trainer's own callbacks come first, and have closed or forgotten what they logged to.
        with at_rest(context.module):
            record = self.core.evaluate_kept(_logging_to(context, self._loggers))
        if record is not None:
            self._note(state, record.step)
        self.core.end()
        self.core.raise_if_failed()


def _saved_state(states: Any, key: str) -> dict[str, Any] | None:
    """Return the last state that a checkpoint holds of a callback; None without any."""
    entries = states if isinstance(states, list) else [states]
    of_this = [each for each in entries if isinstance(each, Mapping) and each["args"].get("restores") == key]
    return dict(of_this[-1]["attributes"]["saved_state"]) if of_this else None


def _logging_to(context: TrainingContext, loggers: Sequence[Any]) -> TrainingContext:
    """Return a context with other loggers."""
    return replace(context, output=replace(context.output, loggers=loggers))
