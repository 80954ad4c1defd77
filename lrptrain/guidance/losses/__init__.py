"""The guidance losses: each says what it needs of a training step, and computes itself.

A new loss is a function in a file here, under `register_loss` or `register_map_loss`, and a test.
"""

import importlib
import pkgutil

from lrptrain.guidance.losses.base import LOSSES, GuidanceLoss, GuidedBatch, LossSum, MapSettings, Needs, register_loss
from lrptrain.guidance.losses.on_maps import MAP_LOSSES, guidance_loss, register_map_loss

__all__ = [
    "LOSSES",
    "MAP_LOSSES",
    "GuidanceLoss",
    "GuidedBatch",
    "LossSum",
    "MapSettings",
    "Needs",
    "guidance_loss",
    "register_loss",
    "register_map_loss",
]

# Importing a file registers its loss.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
