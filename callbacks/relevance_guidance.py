"""Make the model look at the right thing: a guidance loss beside the task's, without an edit of the LightningModule."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lrptrain.callbacks.base import ModelCallback, inform
from lrptrain.guidance.guided_step import Progress
from lrptrain.guidance.guided_training import GuidedTraining
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.relevance.passes.interception import checkpoints
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.naming import name_sources
from lrptrain.trainers.processes import Processes
from lrptrain.trainers.wrapping import wrap_method

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch.optim import Optimizer


class RelevanceGuidance(ModelCallback):
    """Adds a guidance loss to the training step of any LightningModule.

    Batches are those of `RelevanceMonitor`, with `mask`, `boxes` or `rationale`. Gradient accumulation, mixed
    precision, clipping and DDP see one loss.

    **How strong the guidance is.** Without a `weight`, it is multiplied by the largest factor up to 1 at which its
    gradient is at most half as long as the task's. Both are compared in the first guided batches and then in every
    tenth, which costs two backward passes. The factor falls at once, and at most doubles at a time. A model that is
    correct because of a shortcut has hardly any gradient of its task left: the guidance fades with it. A `weight`, or
    weights by name, are applied as they are; too large ones harm the run.

    Logged under `guidance/`, over all processes:

    - each loss by its name: its mean over the guided samples; `total`: their weighted sum;
    - `applied_weight`: what all losses are multiplied by in this step, beside their weights by name;
    - `samples`: guided samples; `swapped`: how many of them were swapped; `failures`; `left_out`: samples with values
      that cannot be guided; `skipped`: losses and steps left out because they were not finite;
    - where gradients are compared, `norm_ratio`: the norm of the guidance's gradient at a factor of 1, over the task's;
    - from time to time `swap_distance`: how far the prediction moves (total variation, 0..1) by a swap. Near 0, the
      model uses the annotated region alone; a map that looks right while this stays high is no proof.

    Guided steps of a compiled model run eagerly. If yours calls `torch.utils.checkpoint` itself, set
    `gradient_checkpointing = True` on it.

    Examples:
        >>> import pytorch_lightning as pl
        >>> from lrptrain.callbacks import RelevanceGuidance
        >>> guidance = RelevanceGuidance("swap", swap="border")
        >>> trainer = pl.Trainer(callbacks=[guidance], logger=False)  # trainer.fit(...) trains the border away

    Args:
        loss: "swap", one of `lrptrain.guidance.LOSSES`, several as in "consistency+energy", or a weight for each by its
            name.
        weight: A factor for all losses, applied as it is. By default see above.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own, or of the
            method that gives the logits.
        options: The other ones of `lrptrain.guidance.GuidanceOptions`, which explains all of them.

    Raises:
        ValueError: At construction, when training is set up, or in the first batch, with what to change.
    """

    def __init__(
        self, loss: str | Mapping[str, float], weight: float | None = None, model: str | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.guidance = GuidedTraining(GuidanceOptions(loss, weight, **options), "RelevanceGuidance", inform)
        self.model = model
        self._unwrap_step: Callable[[], None] | None = None
        self._replay: Tape | None = None
        self._replaying: AbstractContextManager[None] | None = None

    @property
    def failures(self) -> int:
        """How often the guidance failed."""
        return self.guidance.failures

    @property
    def skipped(self) -> int:
        """How often a loss or a gradient was not finite."""
        return self.guidance.skipped

    @property
    def left_out(self) -> int:
        """How often a sample went unguided for its values: pixels that are not finite, a mask of other values."""
        return self.guidance.left_out

    @property
    def state_key(self) -> str:
        """Tells two guidances apart, so that `setup` can say what to do instead."""
        return self._generate_state_key(losses=self.guidance.state.objective.names)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return self.guidance.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.guidance.load_state_dict(state_dict)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, and wrap the training step."""
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(self).__name__} changes the loss that training_step returns, but {type(pl_module).__name__} "
                "optimises manually and returns none to Lightning: set automatic_optimization = True, or add "
                "lrptrain.guidance.guidance_loss to your own loss"
            )
        if sum(isinstance(callback, RelevanceGuidance) for callback in trainer.callbacks) > 1:  # type: ignore[attr-defined]
            raise ValueError("one RelevanceGuidance per trainer: combine losses, as in loss='consistency+energy'")
        # Validation dataloaders are made after this hook: who is asked is known at the first batch.
        self.guidance.name_sources = partial(name_sources, trainer, pl_module)
        # A resumed run is past step 0 and keeps what its checkpoint said.
        if trainer.global_step == 0:
            self.guidance.start_over()
        self._restore()
        self._unwrap_step = wrap_method(pl_module, "training_step", partial(self._step, trainer, pl_module))

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Unwrap the training step."""
        super().teardown(trainer, pl_module, stage)
        self._restore()

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Unwrap the training step: Lightning calls no `teardown` then."""
        self._restore()

    def on_before_backward(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", loss: Tensor) -> None:
        """Let checkpointed blocks of a recorded pass be computed again as they were, with explicit attention."""
        if self._replay is not None:
            self._replaying = self._replay.replaying()
            self._replaying.__enter__()

    def on_after_backward(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """End what `on_before_backward` began."""
        if self._replaying is not None:
            self._replaying.__exit__(None, None, None)
        self._replay = self._replaying = None

    def on_before_optimizer_step(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", optimizer: "Optimizer"
    ) -> None:
        """Drop the gradients of a guided step if one is not finite, so that the step is not taken."""
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        self.guidance.drop_not_finite(optimizer, scaled)

    def _step(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        training_step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the user's training step, and change the loss that it returns."""
        if not trainer.training:  # a validation step that calls the training step gives its own loss
            return training_step(*args, **kwargs)
        if self._model is None:  # a tuner fits before any callback's hook
            self._find_model(trainer, pl_module)
        assert self._model is not None
        # Nor does it call the hooks in which blocks are computed again as they were recorded.
        if self not in trainer.callbacks and checkpoints(self._model):  # type: ignore[attr-defined]
            return training_step(*args, **kwargs)
        batch = args[0] if args else next(iter(kwargs.values()))
        progress = Progress(trainer.fit_loop.epoch_loop.batch_idx, trainer.global_step)
        step = self.guidance.begin(self._model, pl_module, batch, progress, _processes(trainer))
        with step.listening():
            output = training_step(*args, **kwargs)
        task_loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(task_loss, Tensor):
            return output  # the user's step leaves this batch out
        loss = step.guided(task_loss)
        self._replay = step.replay
        batch_size = max(int(step.values["samples"]), 1)
        for name, value in self.guidance.values.items():
            pl_module.log(name, value, on_step=True, on_epoch=False, batch_size=batch_size)
        return {**output, "loss": loss} if isinstance(output, Mapping) else loss

    def _restore(self) -> None:
        """Leave the module and torch's modes as they were before."""
        if self._unwrap_step is not None:
            self._unwrap_step()
        self._unwrap_step = None
        # An exception in the backward pass leaves the mode entered: it is left only if it is still the innermost one.
        innermost: Any = torch.overrides._get_current_function_mode
        if self._replaying is not None and innermost() is self._replay:
            self._replaying.__exit__(None, None, None)
        self._replay = self._replaying = None


def _processes(trainer: "pl.Trainer") -> Processes:
    def over_all(values: Tensor, operation: Literal["sum", "mean"]) -> Tensor:
        reduced: Tensor = trainer.strategy.reduce(values, reduce_op=operation)
        return reduced

    return Processes(trainer.global_rank, trainer.world_size, over_all)
