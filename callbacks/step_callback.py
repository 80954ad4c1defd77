"""The base of callbacks that change the loss of the training step, without an edit of the LightningModule."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from lrptrain.callbacks.base import ModelCallback
from lrptrain.guidance.guided_step import Progress
from lrptrain.relevance.passes.interception import checkpoints
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.processes import Processes
from lrptrain.trainers.wrapping import wrap_method

if TYPE_CHECKING:
    import pytorch_lightning as pl


class StepCallback(ModelCallback):
    """Wraps the training step while the trainer fits: what it calls listens, and changes the loss that it returns.

    Args:
        training: What begins a step of its own beside each of the user's, such as a `GuidedTraining`.
    """

    _end: float = float("inf")
    """The number of optimizer steps of the training, where anything asks for it."""
    _replay: Tape | None = None

    def __init__(self, training: Any) -> None:
        super().__init__()
        self._training = training
        self._unwrap_step: Callable[[], None] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues; what follows the trainer's own steps is not in it."""
        state: dict[str, Any] = self._training.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self._training.load_state_dict(state_dict)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, and wrap the training step."""
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(self).__name__} changes the loss that training_step returns, but {type(pl_module).__name__} "
                "optimises manually and returns none to Lightning: set automatic_optimization = True, or "
                f"{self._by_hand}"
            )
        self._check(trainer)
        # A resumed run is past step 0 and keeps what its checkpoint said.
        if trainer.global_step == 0:
            self._training.start_over()
        self._restore()
        self._unwrap_step = wrap_method(pl_module, "training_step", partial(self._step, trainer, pl_module))

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Unwrap the training step."""
        super().teardown(trainer, pl_module, stage)
        self._restore()

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Unwrap the training step: Lightning calls no `teardown` then."""
        self._restore()

    _by_hand: str
    """What a module that optimises manually can do instead."""

    def _check(self, trainer: "pl.Trainer") -> None:
        """Reject other callbacks of the trainer."""

    def _log(self, pl_module: "pl.LightningModule", values: Mapping[str, float]) -> None:
        """Log what a step has measured."""

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
        progress = Progress(trainer.fit_loop.epoch_loop.batch_idx, trainer.global_step, self._end)
        step = self._training.begin(self._model, pl_module, batch, progress, _processes(trainer))
        if step is None:
            return training_step(*args, **kwargs)
        with step.listening():
            output = training_step(*args, **kwargs)
        task_loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(task_loss, Tensor):
            return output  # the user's step leaves this batch out
        loss = step.guided(task_loss)
        self._replay = step.replay
        self._log(pl_module, step.values)
        return {**output, "loss": loss} if isinstance(output, Mapping) else loss

    def _restore(self) -> None:
        """Leave the module as it was before."""
        if self._unwrap_step is not None:
            self._unwrap_step()
        self._unwrap_step = None


def _processes(trainer: "pl.Trainer") -> Processes:
    def over_all(values: Tensor, operation: Literal["sum", "mean"]) -> Tensor:
        reduced: Tensor = trainer.strategy.reduce(values, reduce_op=operation)
        return reduced

    return Processes(trainer.global_rank, trainer.world_size, over_all)
