"""Parquet files of a run, which any program may have written: looked at before they are read."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from lrptrain.extras import require

MOST_ROWS = 1_000_000
MOST_VALUES = 100_000_000  # of the columns that are read; 400 MB as float32


def arrow_errors(read: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function raise pyarrow's errors as ValueErrors."""

    @wraps(read)
    def reading(*arguments: Any) -> Any:
        try:
            return read(*arguments)
        except require("pyarrow", "monitor").ArrowException as error:
            raise ValueError(" ".join(str(error).split())[:200]) from error

    return reading


def read_schema(path: Path) -> Any:
    """Return the schema of a file."""
    return require("pyarrow.parquet", "monitor").read_schema(path)


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """Return the table of some columns.

    Raises:
        ValueError: If it has more rows or values than any record of a monitor.
    """
    with require("pyarrow.parquet", "monitor").ParquetFile(path) as file:
        _check_size(file.metadata, set(names))
        return file.read(columns=list(names))


def _check_size(metadata: Any, names: set[str]) -> None:
    # A file of some kilobytes can hold a billion equal values: its size says nothing of the memory that reading takes.
    if metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has {metadata.num_rows} rows, more than {MOST_ROWS}")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    # The path of a column of lists is, for example, "map_label.list.element".
    values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)
    if values > MOST_VALUES:
        raise ValueError(f"it has {values} values, more than {MOST_VALUES}")
