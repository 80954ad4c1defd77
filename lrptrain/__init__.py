"""lrptrain: what is my model looking at, and how do I make it look at the right thing?"""

from lrptrain.relevance import (
    Decomposition,
    NonFiniteError,
    Recording,
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
    attribute,
    decompose,
    methods,
    record,
    register_rule,
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
