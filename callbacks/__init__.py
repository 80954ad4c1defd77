"""Callbacks of lrptrain, imported as `lrptrain.callbacks`: for Lightning, and for the Trainer of transformers."""

from typing import TYPE_CHECKING, Any

if __name__ != "lrptrain.callbacks":
    raise ImportError("import lrptrain.callbacks, not the bare folder `callbacks`")

from lrptrain.callbacks.explanation_audit import ExplanationAudit
from lrptrain.callbacks.relevance_guidance import RelevanceGuidance
from lrptrain.callbacks.relevance_monitor import RelevanceMonitor
from lrptrain.callbacks.segmentation_seeds import SegmentationSeeds

if TYPE_CHECKING:
    from lrptrain.callbacks.relevance_monitor_callback import RelevanceMonitorCallback

__all__ = [
    "ExplanationAudit",
    "RelevanceGuidance",
    "RelevanceMonitor",
    "RelevanceMonitorCallback",
    "SegmentationSeeds",
]


def __getattr__(name: str) -> Any:
    """Import the callback for transformers when it is asked for: transformers is optional, and takes seconds."""
    if name == "ParetoCheckpoint":
        raise ImportError(
            "ParetoCheckpoint is gone: ModelCheckpoint(monitor='relevance/...') keeps the best by a number"
        )
    if name != "RelevanceMonitorCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lrptrain.callbacks.relevance_monitor_callback import RelevanceMonitorCallback

    return RelevanceMonitorCallback
