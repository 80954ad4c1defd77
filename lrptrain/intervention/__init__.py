"""What the model answers when a part of its input is removed or swapped: the test of what a map suspects."""

from lrptrain.intervention.changes import Change, KeptChanges
from lrptrain.intervention.effects import INTERVENTIONS, InterventionConfig, effects, is_by_donors, strategy_of
from lrptrain.intervention.regions import Region

__all__ = [
    "INTERVENTIONS",
    "Change",
    "InterventionConfig",
    "KeptChanges",
    "Region",
    "effects",
    "is_by_donors",
    "strategy_of",
]
