"""A number of the product, stated otherwise: for experiments that ask what it does."""

import importlib.machinery
import re
from types import CodeType
from typing import Any


def state(module: str, name: str, factor: float) -> tuple[float, float]:
    """Let a module that is not imported yet state a number otherwise, and with it all that is derived from it.

    Args:
        module: The module.
        name: The number, a line of its own there.
        factor: What it is multiplied by; a whole number stays one, of at least 1.

    Returns:
        What it was, and what it is.
    """
    loader: Any = importlib.machinery.SourceFileLoader
    plain = loader.get_code
    values = []

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if fullname != module:
            return plain(self, fullname)  # type: ignore[no-any-return]
        source = self.get_source(fullname)
        found = re.search(rf"^{name}(?:: \w+)? = (.*)$", source, re.M)
        assert found is not None, f"{name} is no line of {module}"
        was = eval(found[1])
        value = max(1, round(was * factor)) if isinstance(was, int) else was * factor
        values.extend((was, value))
        return self.source_to_code(source[: found.start(1)] + repr(value) + source[found.end(1) :], self.path)  # type: ignore[no-any-return]

    loader.get_code = get_code
    try:
        importlib.import_module(module)
    finally:
        loader.get_code = plain
    return values[0], values[1]
