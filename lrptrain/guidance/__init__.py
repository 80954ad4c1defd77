"""Losses that tell a model where to look: on its relevance maps, and on swapped surroundings."""

from lrptrain.guidance.consistency import consistency, swap_outside, swap_tokens
from lrptrain.guidance.map_losses import MAP_LOSSES, guidance_loss
from lrptrain.guidance.objective import LOSSES
from lrptrain.guidance.right_reasons import right_reasons

__all__ = ["LOSSES", "MAP_LOSSES", "consistency", "guidance_loss", "right_reasons", "swap_outside", "swap_tokens"]
