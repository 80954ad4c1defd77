"""lrptrain: what is my model looking at, and how do I make it look at the right thing?"""

from lrptrain.relevance import (
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
    attribute,
    methods,
    register_rule,
)

__all__ = [
    "Relevance",
    "TokenLayout",
    "UnsupportedMethodError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "attribute",
    "methods",
    "register_rule",
]
