"""Mending a model that is trained: its last layer, anew, on samples in which the shortcut tells nothing."""

from lrptrain.repairing.repair import Repair, repair

__all__ = ["Repair", "repair"]
