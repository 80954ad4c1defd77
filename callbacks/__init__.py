"""Lightning callbacks of lrptrain, imported as `lrptrain.callbacks`."""

if __name__ != "lrptrain.callbacks":
    raise ImportError("import lrptrain.callbacks, not the bare folder `callbacks`")

from lrptrain.callbacks.explanation_audit import ExplanationAudit
from lrptrain.callbacks.pareto_checkpoint import ParetoCheckpoint
from lrptrain.callbacks.relevance_guidance import RelevanceGuidance
from lrptrain.callbacks.relevance_monitor import RelevanceMonitor
from lrptrain.callbacks.segmentation_seeds import SegmentationSeeds

__all__ = ["ExplanationAudit", "ParetoCheckpoint", "RelevanceGuidance", "RelevanceMonitor", "SegmentationSeeds"]
