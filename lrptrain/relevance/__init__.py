"""The relevance engine: torch only."""

from lrptrain.relevance.attribute import attribute, record
from lrptrain.relevance.decomposition.decompose import Decomposition, decompose
from lrptrain.relevance.propagation.propagator import register_rule
from lrptrain.relevance.recording import Recording
from lrptrain.relevance.registry import methods
from lrptrain.relevance.types import (
    NonFiniteError,
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
)

__all__ = [
    "Decomposition",
    "NonFiniteError",
    "Recording",
    "Relevance",
    "TokenLayout",
    "UnsupportedMethodError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "attribute",
    "decompose",
    "methods",
    "record",
    "register_rule",
]
