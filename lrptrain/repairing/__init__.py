"""Fixing what uses a shortcut without training it anew: its last layer."""

from lrptrain.repairing.repair import Repair, repair

__all__ = [
    "Repair",
    "repair",
]
