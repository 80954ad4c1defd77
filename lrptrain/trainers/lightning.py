"""What callbacks read off a Lightning trainer, and how they log to its loggers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DistributedSampler

from lrptrain.relevance.model.preserve import preserved
from lrptrain.trainers.context import Moment, Names, Output, TrainingContext
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.naming import name_sources
from lrptrain.trainers.processes import in_every_process
from lrptrain.trainers.progress import Progress, no_bar, rich_bar, shows_progress, tqdm_bar
from lrptrain.trainers.strategies import adapter_of

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import Logger


def lightning_context(trainer: "pl.Trainer", pl_module: "pl.LightningModule", model: nn.Module) -> TrainingContext:
    """Return what a Lightning trainer knows now."""
    is_first = trainer.is_global_zero
    hyperparameters = [pl_module, getattr(trainer, "datamodule", None), *trainer.optimizers]
    progress = _progress(trainer) if is_first else no_bar
    return TrainingContext(
        model=model,
        module=pl_module,
        device=pl_module.device,
        moment=Moment(
            epoch=trainer.current_epoch,
            step=logged_step(trainer),
            is_training=trainer.state.fn == "fit",
            share_done=_share_done(trainer),
            keeps_last=not _by_metric(trainer),
        ),
        output=Output(trainer.default_root_dir, is_first, progress, trainer.loggers),
        names=Names(name_sources(trainer, pl_module), hyperparameters),
        data_share=adapter_of(trainer.strategy).data_share(trainer.strategy),
        forward_context=trainer.precision_plugin.val_step_context,
    )


def _by_metric(trainer: "pl.Trainer") -> list[Any]:
    """Return the callbacks that keep checkpoints by a logged value."""
    return [
        each
        for each in trainer.checkpoint_callbacks
        if getattr(each, "monitor", None) and getattr(each, "save_top_k", 1) != 0
    ]


def best_checkpoint(trainer: "pl.Trainer") -> str:
    """Return the path of the checkpoint that a callback has kept as the best by a logged value; "" without one."""
    paths = (str(getattr(each, "best_model_path", "") or "") for each in _by_metric(trainer))
    return next(filter(None, paths), "")


@contextmanager
def weights_of(trainer: "pl.Trainer", module: nn.Module, path: str) -> Iterator[None]:
    """Put the weights of a checkpoint of this run into a module for the block, and then its own back, bit by bit.

    All processes must enter it at the same time.
    """
    own = [(each, each.detach().to("cpu", copy=True)) for each in module.parameters()]

    def load() -> None:
        # Written by this very run, with whatever hyperparameters the module has.
        checkpoint = trainer.strategy.load_checkpoint(path, weights_only=False)
        module.load_state_dict(checkpoint["state_dict"], strict=trainer.lightning_module.strict_loading)

    with preserved(module, parameters=False):  # buffers are put back by it
        try:
            in_every_process(load)
            yield
        finally:
            with torch.no_grad():
                for parameter, weight in own:
                    parameter.copy_(weight)


def _share_done(trainer: "pl.Trainer") -> float | None:
    """Return the share of a fit that is done, by whichever of epochs, steps and time ends it; None if none does."""
    shares = []
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        # An epoch of a data loader without a length counts once it is over.
        of_epoch = (trainer.fit_loop.epoch_loop.batch_idx + 1) / max(trainer.num_training_batches, 1)
        shares.append((trainer.current_epoch + min(of_epoch, 1.0)) / trainer.max_epochs)
    if trainer.max_steps > 0:
        shares.append(trainer.global_step / trainer.max_steps)
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if _is_kind(callback, "Timer") and callback.time_remaining() is not None:
            elapsed = callback.time_elapsed()
            shares.append(elapsed / max(elapsed + callback.time_remaining(), 1e-9))
    return min(max(shares), 1.0) if shares else None


def _progress(trainer: "pl.Trainer") -> Progress:
    """Return what shows a bar among Lightning's, by whatever draws those; nothing where it draws none."""
    bar: Any = trainer.progress_bar_callback
    # In a file, or a pipe, a bar is a line for each of its states.
    if not shows_progress():
        return no_bar
    if _is_kind(bar, "TQDMProgressBar"):
        return tqdm_bar
    # Rich redraws its bars where it thinks the cursor is: each line of a bar of tqdm would stay on the screen.
    return partial(rich_bar, bar.progress) if _is_rich(bar) else no_bar


def end_bars(trainer: "pl.Trainer") -> None:
    """Let Rich draw its bars for the last time, when a fit has ended: what is said now stands below them."""
    bar: Any = trainer.progress_bar_callback
    # Lightning does so later, which then changes nothing on a terminal; anywhere else it adds an empty line.
    if _is_rich(bar) and shows_progress():
        bar.progress.stop()


def _is_rich(bar: Any) -> bool:
    """Return whether Rich draws the bars of a callback, and has begun to."""
    return _is_kind(bar, "RichProgressBar") and bar.progress is not None


def _is_kind(bar: Any, name: str) -> bool:
    """Return whether a callback is one of Lightning's by this name, of either of its packages."""
    return name in {base.__name__ for base in type(bar).__mro__}


def logged_step(trainer: "pl.Trainer") -> int:
    """Return the step at which Lightning logs validation values: batches that stepped, not `global_step`."""
    # `global_step` counts the steps of every optimiser: with two of them it is twice as far.
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def log_scalars(logger: "Logger", scalars: Mapping[str, float], trainer: "pl.Trainer") -> None:
    """Make one point in a logger, as Lightning does after a validation."""
    logger.log_metrics({**scalars, "epoch": trainer.current_epoch}, logged_step(trainer))
    logger.save()


def log_to_all(scalars: Mapping[str, float], trainer: "pl.Trainer", failures: Failures) -> None:
    """Make one point in each of a trainer's loggers; one that fails is counted, and keeps nothing from the others."""
    for logger in trainer.loggers:
        with failures.caught(f"logging to {type(logger).__name__}"):
            log_scalars(logger, scalars, trainer)


def undivided_length(trainer: "pl.Trainer", dataloader_idx: int) -> float:
    """Return the length of a validation set that a distributed sampler divides, beyond which it pads; else infinity."""
    loader = validation_loader(trainer, dataloader_idx)
    # 10 samples in 4 processes are padded to 12: two of them come twice. A custom batch sampler wraps the sampler.
    for sampled in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(sampled, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            return len(sampler.dataset)  # type: ignore[arg-type]
    return float("inf")


def validation_loader(trainer: "pl.Trainer", dataloader_idx: int | None) -> Any:
    """Return a validation dataloader by its index; None where they have another form."""
    loaders: Any = trainer.val_dataloaders
    if isinstance(loaders, list | tuple):
        return loaders[dataloader_idx or 0] if (dataloader_idx or 0) < len(loaders) else None
    return loaders


def check_dataloader(trainer: "pl.Trainer", dataloader_idx: int) -> None:
    """Reject the index of a validation dataloader that does not exist."""
    count = len(trainer.num_val_batches)
    if not 0 <= dataloader_idx < count:
        raise ValueError(f"dataloader_idx={dataloader_idx}, but there are {count} validation dataloaders, from 0 on")


def callbacks_that_watch(trainer: "pl.Trainer", prefix: str) -> list[Any]:
    """Return the callbacks that go by one of the values that start with a prefix, such as `EarlyStopping`."""
    keys = ((each, getattr(each, "monitor", None)) for each in trainer.callbacks)  # type: ignore[attr-defined]
    return [each for each, key in keys if isinstance(key, str) and key.startswith(prefix)]


def schedulers_that_watch(trainer: "pl.Trainer", prefix: str) -> list[tuple[str, str]]:
    """Return the names of learning-rate schedulers such as `ReduceLROnPlateau`, and the keys that they go by."""
    watching = ((each.scheduler, each.monitor or "") for each in trainer.lr_scheduler_configs)
    return [(type(scheduler).__name__, key) for scheduler, key in watching if key.startswith(prefix)]
