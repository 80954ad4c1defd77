"""lrptrain: what is my model looking at, and how do I make it look at the right thing?"""

from lrptrain.relevance import (
    Recorded,
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
    attribute,
    methods,
    record,
    register_rule,
)

__all__ = [
    "Recorded",
    "Relevance",
    "TokenLayout",
    "UnsupportedMethodError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "attribute",
    "methods",
    "record",
    "register_rule",
]
