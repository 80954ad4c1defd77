"""Group DRO under Lightning: groups are weighted in the loss of the training step, without an edit of the module."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lrptrain.batch import BatchAdapter
from lrptrain.callbacks.relevance_guidance import RelevanceGuidance
from lrptrain.callbacks.step_callback import StepCallback
from lrptrain.guidance.group_dro import GroupDROTraining, GroupOf, SampleLoss

if TYPE_CHECKING:
    import pytorch_lightning as pl


class GroupDRO(StepCallback):
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
        self.training = GroupDROTraining(groups, group, step_size, loss, batch_adapter)
        super().__init__(self.training)
        self.model = model

    @property
    def shares(self) -> list[float]:
        """The share of each group in the loss; they sum to 1."""
        return self.training.robust.shares

    _by_hand = "use lrptrain.GroupDROLoss in your own step"

    def _check(self, trainer: "pl.Trainer") -> None:
        before = trainer.callbacks[: trainer.callbacks.index(self)]  # type: ignore[attr-defined]
        if any(isinstance(callback, RelevanceGuidance) for callback in before):
            raise ValueError(
                "GroupDRO weights the module's own loss, to which RelevanceGuidance adds: list GroupDRO first, as in "
                "callbacks=[GroupDRO(...), RelevanceGuidance(...)]"
            )

    def _log(self, pl_module: "pl.LightningModule", values: Mapping[str, float]) -> None:
        for name, value in values.items():
            pl_module.log(name, value, on_step=True, on_epoch=False, batch_size=1)
