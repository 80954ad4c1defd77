"""Mending a model that is trained: its last layer, anew, by samples in which the shortcut tells nothing."""

from lrptrain.repairing.comparison import RepairComparison, compare_repairs
from lrptrain.repairing.repair import Repair, repair

__all__ = ["Repair", "RepairComparison", "compare_repairs", "repair"]
