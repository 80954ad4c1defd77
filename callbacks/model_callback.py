"""What callbacks share that use the user's model beside its steps."""

from typing import Any

from torch import nn

from lrptrain.callbacks.base import Callback
from lrptrain.trainers.discover import find_model
from lrptrain.trainers.lightning import check_dataloader


class ModelCallback(Callback):
    """Finds the model when all that may make it has run, and refuses a validation dataloader that is not there.

    Attributes:
        model: Attribute path of the model on the LightningModule; None for the module itself.
        dataloader_idx: Which validation dataloader.
    """

    model: str | None
    dataloader_idx: int
    _model: nn.Module | None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the model, which the module's own `setup` or `configure_model` may have made."""
        self._model = find_model(pl_module, self.model)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """The same for `trainer.validate`."""
        self._model = find_model(pl_module, self.model)
        if trainer.sanity_checking or trainer.state.fn == "validate":
            check_dataloader(trainer, self.dataloader_idx)
