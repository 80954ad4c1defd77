"""What all callbacks stand on: Lightning's base class and messages, from either of its packages, and their own base.

Trainers of both packages take callbacks of either.
"""

from typing import TYPE_CHECKING, ClassVar, NoReturn

from lightning_utilities.core import rank_zero as rank_zero_module
from torch import nn

from lrptrain.terminal import WrappedWarning, harmless
from lrptrain.trainers.discover import Method, find_model
from lrptrain.trainers.lightning import check_dataloader
from lrptrain.trainers.messages import for_logger, spoken_by
from lrptrain.trainers.strategies import check_strategy

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn  # where both packages have them from
    from pytorch_lightning.callbacks import Callback
else:
    try:
        from pytorch_lightning.callbacks import Callback
        from pytorch_lightning.utilities.rank_zero import rank_zero_info, rank_zero_warn
    except ModuleNotFoundError:
        from lrptrain.extras import require

        rank_zero = require("lightning.pytorch.utilities.rank_zero", "monitor")
        Callback = require("lightning.pytorch.callbacks", "monitor").Callback
        rank_zero_info = rank_zero.rank_zero_info
        rank_zero_warn = rank_zero.rank_zero_warn

__all__ = ["Callback", "ModelCallback", "inform", "warn"]


def warn(message: str) -> None:
    """Warn the user as Lightning does, in the first process; no training ends with it."""
    with harmless(message):
        rank_zero_warn(message, category=WrappedWarning, stacklevel=7)


def inform(message: str) -> None:
    """Say something as Lightning does, in the first process."""
    text = for_logger(message, rank_zero_module.log)
    with spoken_by(rank_zero_module.log):
        rank_zero_info(text)


class ModelCallback(Callback):
    """Runs the user's model beside its steps: finds it, and rejects trainers with which the callback cannot work.

    The model is looked up when training or validation starts: the module's own `setup` may make it.

    Attributes:
        takes_shards: Whether the callback gathers parameters that are DTensors.
        model: The attribute path of the model, or of a method, on the LightningModule; None for itself or its only one.
        dataloader_idx: The index of the validation dataloader that the callback reads; None if it reads none.

    Raises:
        ValueError: If the strategy shards parameters in a way that is not taken, no model is found, or there is no such
            dataloader.
    """

    takes_shards: ClassVar[bool] = False
    model: str | None = None
    dataloader_idx: int | None = None
    _model: nn.Module | None = None

    def on_init_end(self, *args: object, **kwargs: object) -> NoReturn:
        """Reject the Trainer of transformers, which calls its callbacks by this name."""
        raise ValueError(
            f"{type(self).__name__} is a callback of Lightning's trainer: that of transformers takes "
            "callbacks=[lrptrain.callbacks.RelevanceMonitorCallback()] and lrptrain.guide(trainer, ...)"
        )

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject a strategy whose shards cannot be taken, and forget the model of an earlier run."""
        check_strategy(trainer.strategy, type(self).__name__, self.takes_shards)
        self._model = None

    def on_fit_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Find the model before the first step."""
        self._find_model(trainer, pl_module)

    def on_validation_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Find the model in `trainer.validate`, and check the dataloader in the first validation of any run."""
        self._find_model(trainer, pl_module)
        if self.dataloader_idx is not None and (trainer.sanity_checking or trainer.state.fn == "validate"):
            check_dataloader(trainer, self.dataloader_idx)

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Leave the module as it was before."""
        if isinstance(self._model, Method):
            self._model.release()

    def _find_model(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Look the model up; a callback that has more to say about it extends this."""
        self._model = find_model(pl_module, self.model)
