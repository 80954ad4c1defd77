"""Losses that tell a model where to look: on its relevance maps, and on swapped surroundings."""

from lrptrain.guidance.losses import LOSSES, MAP_LOSSES, guidance_loss, register_loss, register_map_loss
from lrptrain.guidance.losses.consistency import consistency
from lrptrain.guidance.losses.rrr import right_reasons
from lrptrain.guidance.options import GuidanceOptions

__all__ = [
    "LOSSES",
    "MAP_LOSSES",
    "GuidanceOptions",
    "consistency",
    "guidance_loss",
    "register_loss",
    "register_map_loss",
    "right_reasons",
]
