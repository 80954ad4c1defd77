"""Lightning's base classes and its messages to the user, from whichever of its two packages is installed.

Trainers of both packages take callbacks of either.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn  # where both packages have them from
    from pytorch_lightning.callbacks import Callback, Checkpoint
else:
    try:
        from pytorch_lightning.callbacks import Callback, Checkpoint
        from pytorch_lightning.utilities.rank_zero import rank_zero_info, rank_zero_warn
    except ModuleNotFoundError:
        from lrptrain.extras import require

        callbacks = require("lightning.pytorch.callbacks", "monitor")
        rank_zero = require("lightning.pytorch.utilities.rank_zero", "monitor")
        Callback = callbacks.Callback
        Checkpoint = callbacks.Checkpoint
        rank_zero_info = rank_zero.rank_zero_info
        rank_zero_warn = rank_zero.rank_zero_warn

__all__ = ["Callback", "Checkpoint", "rank_zero_info", "rank_zero_warn"]
