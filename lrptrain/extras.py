"""Optional dependencies: a missing one explains itself."""

import importlib
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra of lrptrain brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Another module that is missing is an error within an installed package, which the extra would not fix.
        if error.name != module.partition(".")[0]:
            raise
        raise ImportError(f"{module} is needed here and is not installed: pip install 'lrptrain[{extra}]'") from error
