"""What an audit has measured so far, in a file that a second one continues."""

import json
import math
from pathlib import Path
from typing import Any

from lrptrain.files import append_json_line

Values = dict[str, Any]
"""What a test measured: by name a number, a list of numbers (one per sample), or a dict of such."""


class Store:
    """Measurements by key: an append-only file of JSON lines, one for each.

    A line that was cut off, as by a process that was killed while writing, is passed over.

    Args:
        path: Of the file; None keeps all in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, Values] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def get(self, key: str) -> Values | None:
        """What was measured under a key, or None."""
        return self._found.get(key)

    def add(self, key: str, values: Values) -> None:
        """Keep a measurement; one of the same key takes the place of an earlier one."""
        self._found[key] = values
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_json_line(self.path, {"key": key, "values": values})

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return
        self._found[entry["key"]] = _with_nan(entry["values"])


def _with_nan(value: Any) -> Any:
    """The same with nan for None."""
    if isinstance(value, dict):
        return {key: _with_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    return math.nan if value is None else value
