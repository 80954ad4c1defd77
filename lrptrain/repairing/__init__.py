"""Mending what reads a shortcut: its last layer, anew; what others train again by; and models beside each other."""

from lrptrain.repairing.jtt import jtt_weights
from lrptrain.repairing.repair import Repair, repair
from lrptrain.repairing.trainings import ModelComparison, compare_models

__all__ = [
    "ModelComparison",
    "Repair",
    "compare_models",
    "jtt_weights",
    "repair",
]
