"""Losses that tell a model where to look: on its relevance maps, and on swapped surroundings."""

from lrptrain.guidance.consistency import consistency, swap_outside
from lrptrain.guidance.map_losses import MAP_LOSSES, guidance_loss

__all__ = ["MAP_LOSSES", "consistency", "guidance_loss", "swap_outside"]
