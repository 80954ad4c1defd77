"""Group DRO under Lightning: groups are weighted in the loss of the training step, without an edit of the module."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lrptrain.batch import BatchAdapter
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.callbacks.relevance_guidance import RelevanceGuidance
from lrptrain.guidance.group_dro import GroupDROTraining, GroupOf, SampleLoss
from lrptrain.guidance.guided_step import Progress
from lrptrain.trainers.processes import torch_processes
from lrptrain.trainers.wrapping import wrap_method

if TYPE_CHECKING:
    import pytorch_lightning as pl


class GroupDRO(ModelCallback):
    """Weights the groups in the loss of any LightningModule: the group that the model is worst at counts most.

    What users would try first against a shortcut whose groups they know, and what other ways are to be compared with:
    Sagawa et al. 2020, algorithm 1, see `lrptrain.GroupDROLoss`. The step's own loss must be the mean cross-entropy of
    the model's logits, which is checked in the first batch, or `loss` says what it is the mean of. Each batch of an
    accumulation moves the shares of the groups. Training steps run eagerly where a model is compiled.

    Logged under `group_dro/`: `share_0`, ... of all groups, and `loss_0`, ... of those that have a sample in the batch,
    over all processes.

    Args:
        groups: How many groups there are: those of class and shortcut together, as a rule.
        group: The entry of the batch that holds the group of each sample, counted from 0; or a function of the batch,
            such as `lambda batch: 2 * batch["label"] + batch["place"]`.
        step_size: How fast the shares of groups move.
        loss: What the step's loss is the mean of: a function of logits and labels that returns one loss per sample. By
            default the cross-entropy, of one logit the binary one.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the contract's names; `group` is looked up in what it returns.

    Raises:
        ValueError: At construction, when training is set up, or in the first batch, with what to change.
    """

    def __init__(
        self,
        groups: int,
        group: GroupOf = "group",
        step_size: float = 0.01,
        loss: SampleLoss | None = None,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
    ) -> None:
        super().__init__()
        self.training = GroupDROTraining(groups, group, step_size, loss, batch_adapter)
        self.model = model
        self._unwrap_step: Callable[[], None] | None = None

    @property
    def shares(self) -> list[float]:
        """The share of each group in the loss; they sum to 1."""
        return self.training.robust.shares

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return self.training.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.training.load_state_dict(state_dict)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, and wrap the training step."""
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"GroupDRO weights the loss that training_step returns, but {type(pl_module).__name__} optimises "
                "manually and returns none to Lightning: set automatic_optimization = True, or use "
                "lrptrain.GroupDROLoss in your own step"
            )
        before = trainer.callbacks[: trainer.callbacks.index(self)]  # type: ignore[attr-defined]
        if any(isinstance(callback, RelevanceGuidance) for callback in before):
            raise ValueError(
                "GroupDRO weights the module's own loss, to which RelevanceGuidance adds: list GroupDRO first, as in "
                "callbacks=[GroupDRO(...), RelevanceGuidance(...)]"
            )
        # A resumed run is past step 0 and keeps what its checkpoint said.
        if trainer.global_step == 0:
            self.training.start_over()
        self._restore()
        self._unwrap_step = wrap_method(pl_module, "training_step", partial(self._robust_step, trainer, pl_module))

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Unwrap the training step."""
        self._restore()

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Unwrap the training step: Lightning calls no `teardown` then."""
        self._restore()

    def _robust_step(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        training_step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the user's training step, and weight the groups in the loss that it returns."""
        if not trainer.training:  # a validation step that calls the training step gives its own loss
            return training_step(*args, **kwargs)
        assert self._model is not None
        batch = args[0] if args else next(iter(kwargs.values()))
        progress = Progress(trainer.fit_loop.epoch_loop.batch_idx, trainer.global_step)
        step = self.training.begin(self._model, pl_module, batch, progress, torch_processes())
        with step.listening():
            output = training_step(*args, **kwargs)
        task_loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(task_loss, Tensor):
            return output  # the user's step leaves this batch out
        loss = step.guided(task_loss)
        for name, value in self.training.values.items():
            pl_module.log(name, value, on_step=True, on_epoch=False, batch_size=1)
        return {**output, "loss": loss} if isinstance(output, Mapping) else loss

    def _restore(self) -> None:
        if self._unwrap_step is not None:
            self._unwrap_step()
        self._unwrap_step = None
