"""The relevance engine: torch only."""

from lrptrain.relevance.attribute import attribute, record
from lrptrain.relevance.decomposition.decompose import Decomposition, decompose
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.composite import Composite, Rule, register_rule, use_rules
from lrptrain.relevance.registry import RelevanceMaps, methods, register_method
from lrptrain.relevance.types import (
    NonFiniteError,
    Relevance,
    RelevanceWarning,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
)

__all__ = [
    "Composite",
    "Decomposition",
    "Explanation",
    "NonFiniteError",
    "Recording",
    "Relevance",
    "RelevanceMaps",
    "RelevanceWarning",
    "Rule",
    "TokenLayout",
    "UnsupportedMethodError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "attribute",
    "decompose",
    "methods",
    "record",
    "register_method",
    "register_rule",
    "use_rules",
]
