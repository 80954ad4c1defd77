"""Lightning's base classes, from whichever of its two packages is installed. Both trainers take either."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback, Checkpoint
else:
    try:
        from pytorch_lightning.callbacks import Callback, Checkpoint
    except ModuleNotFoundError:
        from lrptrain.extras import require

        callbacks = require("lightning.pytorch.callbacks", "monitor")
        Callback, Checkpoint = callbacks.Callback, callbacks.Checkpoint

__all__ = ["Callback", "Checkpoint"]
