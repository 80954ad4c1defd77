"""Lightning's base classes and its messages to the user, from whichever of its two packages is installed.

Trainers of both packages take callbacks of either.
"""

from typing import TYPE_CHECKING

from lightning_utilities.core import rank_zero as rank_zero_module

from lrptrain.terminal import WrappedWarning, harmless
from lrptrain.trainers.emphasis import for_logger, spoken_by

if TYPE_CHECKING:
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

__all__ = ["Callback", "inform", "warn"]


def warn(message: str) -> None:
    """Warn the user as Lightning does, in the first process; no training ends with it."""
    with harmless(message):
        rank_zero_warn(message, category=WrappedWarning, stacklevel=7)


def inform(message: str) -> None:
    """Say something as Lightning does, in the first process, with verdicts in colour on a terminal."""
    text = for_logger(message, rank_zero_module.log)
    with spoken_by(rank_zero_module.log):
        rank_zero_info(text)
