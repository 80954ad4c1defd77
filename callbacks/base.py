"""Lightning's Callback, from whichever of its two packages is installed. Both trainers take either."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytorch_lightning import Callback
else:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError:
        from lrptrain.extras import require

        Callback = require("lightning.pytorch", "monitor").Callback

__all__ = ["Callback"]
