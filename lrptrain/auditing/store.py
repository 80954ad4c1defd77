"""The values that tests measure, and the file that keeps them for an audit that is started again."""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lrptrain.files import append_json_line, read_text

Values = dict[str, Any]
"""What a test measured: by name a number, a list of numbers (one per sample), or a dict of such."""


def to_list(values: Float[Tensor, " n"]) -> list[float]:
    """Return the numbers, rounded to six digits, as JSON holds them."""
    return [round(value, 6) for value in values.detach().double().cpu().tolist()]


class Store:
    """Measurements by key, in an append-only file with a line of JSON for each.

    An incomplete line, such as a process leaves that is killed while it writes, is skipped.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, Values] = {}
        if path is not None and path.exists():
            for line in read_text(path).splitlines():
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    entry = json.loads(line)
                    self._entries[entry["key"]] = _with_nan(entry["values"])

    def get(self, key: str) -> Values | None:
        """Return what was measured under a key; None if nothing was."""
        return self._entries.get(key)

    def add(self, key: str, values: Values) -> None:
        """Save a measurement; it replaces an earlier one of the same key."""
        self._entries[key] = values
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_json_line(self.path, {"key": key, "values": values})


def _with_nan(value: Any) -> Any:
    """Return the same with nan for None, which JSON holds instead."""
    if isinstance(value, dict):
        return {key: _with_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_nan(entry) for entry in value]
    return math.nan if value is None else value
