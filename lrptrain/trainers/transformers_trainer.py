"""What a callback of transformers' Trainer reads off it, and off who calls the callback."""

import math
import sys
from types import FrameType, SimpleNamespace
from typing import Any

from torch import nn

from lrptrain.trainers.context import Moment, Names, Output, TrainingContext
from lrptrain.trainers.discover import bare_model, device_of
from lrptrain.trainers.progress import no_bar, shows_progress, tqdm_bar


def calling_trainer(kind: type) -> Any:
    """Return the trainer that calls, from somewhere above in the stack; None if none does.

    Callbacks are given the model and the state, but neither the evaluation set before it is evaluated, nor the
    callbacks that log.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None


def transformers_context(trainer: Any, args: Any, state: Any, model: nn.Module, tokenizer: Any) -> TrainingContext:
    """Return what a Trainer knows now."""
    bare = bare_model(model, takes_shards=True)
    is_first = bool(state.is_world_process_zero)
    share_done = min(state.global_step / state.max_steps, 1.0) if state.max_steps > 0 else None
    return TrainingContext(
        model=bare,
        module=bare,
        device=device_of(bare),
        moment=Moment(
            epoch=epoch_number(state.epoch),
            step=int(state.global_step),
            is_training=bool(trainer.is_in_train),
            share_done=share_done,
            keeps_last=not args.load_best_model_at_end,
        ),
        output=Output(
            args.output_dir,
            is_first,
            progress=tqdm_bar if is_first and not args.disable_tqdm and shows_progress() else no_bar,
            loggers=experiments(trainer) if is_first else (),
        ),
        names=Names(
            sources=trainer_name_sources(trainer, bare, tokenizer),
            hyperparameters=[args, trainer.optimizer],
            step="the Trainer",
            step_hint="Name the columns of eval_dataset as the forward's parameters, which the Trainer goes by",
            guidance='lrptrain.guide(trainer, "swap", swap=monitor.faults)',
        ),
    )


def trainer_name_sources(trainer: Any, model: nn.Module, tokenizer: Any) -> list[Any]:
    """Return who knows the tokenizer and the names of classes: the Trainer, its evaluation set and the model."""
    names = SimpleNamespace(tokenizer=getattr(tokenizer, "tokenizer", tokenizer))
    datasets = trainer.eval_dataset
    dataset = next(iter(datasets.values()), None) if isinstance(datasets, dict) else datasets
    return [names, dataset, trainer.data_collator, model]


def epoch_number(epoch: float | None) -> int:
    """Return the epoch in which a Trainer is, which counts from 1 on: 0.5 and 1.0 are in epoch 1, 0 is before it."""
    return math.ceil((epoch or 0.0) - 1e-6)


def experiments(trainer: Any) -> list[Any]:
    """Return what the Trainer's own callbacks log to (`report_to`).

    These are the W&B run, the TensorBoard writer, the MLflow run and the Comet experiment.
    """
    logged_to = []
    for callback in trainer.callback_handler.callbacks:
        wandb = getattr(callback, "_wandb", None)
        mlflow = getattr(callback, "_ml_flow", None)
        logged_to += [
            getattr(callback, "tb_writer", None),
            getattr(wandb, "run", None),
            None if mlflow is None else mlflow.active_run(),
            getattr(callback, "_experiment", None),
        ]
    return [each for each in logged_to if each is not None]


def check_sharding(trainer: Any, monitor: str) -> None:
    """Reject trainers that shard parameters without DTensors; FSDP is known by the model that it makes."""
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise ValueError(f"{monitor} needs whole parameters, which DeepSpeed shards: use FSDP2, DDP or a single device")
