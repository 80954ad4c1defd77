"""Guidance in the Trainer of transformers, without an edit of it."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.spans import token_rationale
from lrptrain.extras import require
from lrptrain.guidance.guided_step import Progress
from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.loop import LoopStep
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.trainers.discover import bare_model, find_model
from lrptrain.trainers.processes import torch_processes
from lrptrain.trainers.transformers_trainer import trainer_name_sources
from lrptrain.trainers.wrapping import wrap_method

transformers = require("transformers", "transformers")

COLUMNS = (*ANNOTATIONS, "sample_id")
"""What guidance reads of a batch, and few models take."""
_OF_SPANS = ("offset_mapping", "text")
"""What rationales of spans and words need."""
STATE = "RelevanceGuidance"
"""The name of the guidance's state in a checkpoint's `trainer_state.json`."""


def guide(
    trainer: Any,
    loss: str | Mapping[str, float],
    weight: float | None = None,
    *,
    model: str | None = None,
    **options: Any,
) -> GuidedTraining:
    """Add a guidance loss to the training steps of a `transformers.Trainer`, of any subclass.

    The training set has the annotations as further columns: `mask` or `boxes` for images, `rationale` for texts (spans
    and words need `offset_mapping` and `text`). They reach the guidance also with `remove_unused_columns=True`.

    What `RelevanceGuidance` logs under `guidance/` goes into the logs of the training loss, and so to `report_to`. A
    resumed run continues with the factor of its checkpoint.

    Examples:
        >>> import torch, lrptrain
        >>> from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
        >>> config = ViTConfig(image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> dataset = [{"pixel_values": torch.rand(3, 16, 16), "labels": 0, "mask": torch.eye(16)}]
        >>> args = TrainingArguments("runs", report_to=[], use_cpu=True)
        >>> trainer = Trainer(ViTForImageClassification(config), args, train_dataset=dataset)
        >>> guidance = lrptrain.guide(trainer, "energy")  # then trainer.train()
        >>> guidance.failures
        0

    Args:
        trainer: The trainer, before `train` is called.
        loss: The losses, as in `lrptrain.guidance.GuidanceOptions`.
        weight: A factor for all losses. By default as large as the task's gradient allows.
        model: The attribute path of the network on the trainer's model, where the annotations belong to what a part of
            it is called with.
        options: The other ones of `lrptrain.guidance.GuidanceOptions`.

    Returns:
        The guidance, with `values`, `failures`, `skipped` and `left_out`.

    Raises:
        ValueError: At once if an option is wrong or the trainer guided already; in the first batch if the guidance
            cannot work, with what to change.
    """
    if any(isinstance(callback, _Callback) for callback in trainer.callback_handler.callbacks):
        raise ValueError("one guidance per trainer: combine losses, as in loss='consistency+energy'")
    guidance = GuidedTraining(GuidanceOptions(loss, weight, **options))
    guidance.name_sources = lambda: trainer_name_sources(trainer, trainer.model, trainer.processing_class)
    trainer.add_callback(_Callback(_GuidedTrainer(trainer, guidance, model)))
    return guidance


class _GuidedTrainer:
    """Wraps the methods of a trainer that make a guided step."""

    def __init__(self, trainer: Any, guidance: GuidedTraining, model: str | None) -> None:
        self.trainer = trainer
        self.guidance = guidance
        self.batches = 0
        self._model_path = model
        self._step: ExitStack | None = None
        """What is left at the end of a training step; None outside of one: then losses are not guided."""
        wrap_method(trainer, "get_train_dataloader", self._get_train_dataloader)
        wrap_method(trainer, "training_step", self._training_step)
        wrap_method(trainer, "compute_loss", self._compute_loss)
        wrap_method(trainer, "log", self._log)

    def _get_train_dataloader(
        self, get_train_dataloader: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a training dataloader that keeps the annotations."""
        trainer = self.trainer
        trainer._set_signature_columns_if_needed()
        signature = trainer._signature_columns
        collator = trainer.data_collator
        columns = list(COLUMNS)
        # Those of transformers fail at names, and at rationales of several lengths; somebody's own knows its columns.
        if _module_of(collator).partition(".")[0] == "transformers":
            trainer.data_collator = AnnotationCollator(collator)
            columns += _OF_SPANS
        trainer._signature_columns = [*signature, *(name for name in columns if name not in signature)]
        try:
            return get_train_dataloader(*args, **kwargs)
        finally:  # evaluation is as it was
            trainer._signature_columns = signature
            trainer.data_collator = collator

    def _training_step(self, training_step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a training step, and its backward pass through checkpointed blocks as they were recorded."""
        with ExitStack() as self._step:
            try:
                return training_step(*args, **kwargs)
            finally:
                self._step = None

    def _compute_loss(self, compute_loss: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute the trainer's loss; in a training step, with the guidance."""
        named = {**dict(zip(("model", "inputs"), args, strict=False)), **kwargs}
        model = named["model"]
        inputs = named["inputs"]
        others = args[2:]
        named_others = {name: value for name, value in kwargs.items() if name not in ("model", "inputs")}
        model_inputs = self._without_annotations(inputs, compute_loss)
        if self._step is None:
            return compute_loss(model, model_inputs, *others, **named_others)
        step = self._begin(model, inputs)
        self._step.enter_context(step)
        output = compute_loss(model, model_inputs, *others, **named_others)
        loss = output[0] if isinstance(output, tuple) else output
        if not isinstance(loss, Tensor):
            return output
        guided = step.guided(loss, self._share(named.get("num_items_in_batch")))
        return (guided, *output[1:]) if isinstance(output, tuple) else guided

    def _begin(self, model: Any, inputs: Any) -> LoopStep:
        if self.trainer.args.n_gpu > 1:
            raise ValueError("guidance needs one process per device, not DataParallel: start the script with torchrun")
        inner = bare_model(model)
        listened = inner if self._model_path is None else find_model(inner, self._model_path)
        progress = Progress(self.batches, self.trainer.state.global_step)
        self.batches += 1
        return LoopStep(self.guidance.begin(listened, model, inputs, progress, torch_processes()))

    def _without_annotations(self, inputs: Any, compute_loss: Callable[..., Any]) -> Any:
        """Return the inputs as the loss would get them without guidance."""
        removed = self.trainer.args.remove_unused_columns
        # Without it, a loss of the user's own may read a mask; the Trainer's own hands all columns to the model.
        if not removed and not _module_of(compute_loss).startswith("transformers."):
            return inputs
        self.trainer._set_signature_columns_if_needed()
        foreign = [name for name in COLUMNS if name in inputs and name not in self.trainer._signature_columns]
        if not foreign:
            return inputs
        rest = copy.copy(inputs)
        for name in foreign:
            del rest[name]
        return rest

    def _share(self, num_items_in_batch: Any) -> float:
        """Return the weight of one batch among several that are accumulated, as the Trainer divides its loss."""
        trainer = self.trainer
        divided = getattr(trainer, "loss_is_scaled_for_ga", None)
        if divided is None:
            by_labels = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
            divided = by_labels or trainer.compute_loss_func is not None
        return 1.0 / trainer.current_gradient_accumulation_steps if divided else 1.0

    def _log(self, log: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Log the guidance beside the training loss."""
        logs = args[0] if args else kwargs["logs"]
        if "loss" in logs:
            # As JSON has no nan, in which a checkpoint keeps all logs.
            logs.update({name: value for name, value in self.guidance.values.items() if math.isfinite(value)})
        return log(*args, **kwargs)


class _Callback(transformers.TrainerCallback):  # type: ignore[name-defined]
    """Starts a run over, or continues with it, and looks at the gradients before each step of the optimizer."""

    def __init__(self, guided: _GuidedTrainer) -> None:
        self.guided = guided

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forget an earlier run; continue with that of a checkpoint."""
        guidance = self.guided.guidance
        guidance.start_over()
        self.guided.batches = 0
        saved = (state.stateful_callbacks or {}).get(STATE)
        if state.global_step and saved is not None:
            guidance.load_state_dict(saved["attributes"])
            self.guided.batches = saved["attributes"]["batches"]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave out a guided step whose gradient is not finite."""
        scaled = getattr(self.guided.trainer.accelerator, "scaler", None) is not None
        self.guided.guidance.drop_not_finite(kwargs["optimizer"], scaled)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the state where a checkpoint is written from."""
        # Not as an `ExportableState`: the Trainer would make the callback anew, and could not save a run that continues
        # from a checkpoint without one.
        attributes = {**self.guided.guidance.state_dict(), "batches": self.guided.batches}
        state.stateful_callbacks[STATE] = {"args": {}, "attributes": attributes}


class AnnotationCollator:
    """Takes rationales and names of samples past a collator that cannot collate them."""

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self.collator = collator

    def __call__(self, features: list[Any]) -> Any:
        """Return the batch, with `rationale` as one value for each of its tokens, and `sample_id` as a list."""
        if not all(isinstance(each, Mapping) for each in features):
            return self.collator(features)
        names = [name for name in ("rationale", "sample_id", *_OF_SPANS) if all(name in each for each in features)]
        columns = {name: [each[name] for each in features] for name in names}
        if not columns:
            return self.collator(features)
        batch = self.collator([{key: x for key, x in each.items() if key not in columns} for each in features])
        if "rationale" in columns:
            batch["rationale"] = torch.as_tensor(token_rationale(columns["rationale"], {**batch, **columns}))
        if "sample_id" in columns:
            batch["sample_id"] = columns["sample_id"]
        return batch


def _module_of(function: Any) -> str:
    """Return where a function, a method or the class of an object is defined."""
    return str(getattr(inspect.unwrap(function), "__module__", None) or type(function).__module__)
