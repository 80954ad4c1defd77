"""Nested tuples, lists and dicts, as the arguments of torch functions come."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tensors_in(structure: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists and dicts."""
    if isinstance(structure, Tensor):
        yield structure
    elif isinstance(structure, (tuple, list)):
        for item in structure:
            yield from tensors_in(item)
    elif isinstance(structure, dict):
        yield from tensors_in(list(structure.values()))


def map_nested(structure: Any, kind: type, function: Callable) -> Any:
    """Replace everything of type `kind` in nested tuples, lists and dicts."""
    if isinstance(structure, kind):
        return function(structure)
    if isinstance(structure, (tuple, list)):
        items = [map_nested(item, kind, function) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    if isinstance(structure, dict):
        return {key: map_nested(item, kind, function) for key, item in structure.items()}
    return structure
