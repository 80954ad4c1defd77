"""Parquet files of a run, which any program may have written: looked at before they are read."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from lrptrain.extras import require

MOST_ROWS = 1_000_000
MOST_VALUES = 100_000_000
MOST_CELLS = 5_000_000
MOST_BYTES = 4 * MOST_VALUES
"""Beyond these a file is passed over: rows, numbers of the columns that are read, cells that become objects of Python,
which take ten times the room, and bytes of texts, written out. A choice: 400 MB, far above what a monitor writes."""
_ROWS_AT_ONCE = 256
"""Rows of a group: a choice, of how much of a file is in the memory at once."""
# Texts that a file holds once, for all rows that have them, are read so, too: that takes no more room than the file.
_TEXTS = ("is_string", "is_large_string", "is_binary", "is_large_binary")


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


def read_columns(path: Path, names: Sequence[str] | None = None, most_values: int = MOST_VALUES) -> Any:
    """Return the table of some columns, all by default; too many rows, values or bytes are a ValueError."""
    parquet = require("pyarrow.parquet", "monitor")
    types = require("pyarrow.types", "monitor")
    with parquet.ParquetFile(path) as file:
        metadata = file.metadata
        chosen = [field for field in file.schema_arrow if names is None or field.name in names]
    texts = [field.name for field in chosen if any(getattr(types, is_text)(field.type) for is_text in _TEXTS)]
    with parquet.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
        columns = [field.name for field in chosen]
        _check_size(metadata, set(columns), most_values)
        batches = []
        used = 0
        # One thread: several would read ahead of what has been counted.
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            used += sum(_written_out(column) for column in batch.columns)
            _check_bytes(used)
            batches.append(batch)
        arrow = require("pyarrow", "monitor")
        table = arrow.Table.from_batches(batches) if batches else file.read(columns=columns)
    plain = {field.name: field.type for field in chosen}
    for place, name in enumerate(table.column_names):
        if name in texts:
            table = table.set_column(place, name, table[name].cast(plain[name]))
    return table.combine_chunks()


def _written_out(column: Any) -> int:
    """Return the bytes of a part of a column; of texts that are held once for all of their rows, of all rows."""
    if not require("pyarrow.types", "monitor").is_dictionary(column.type):
        return int(column.nbytes)
    compute = require("pyarrow.compute", "monitor")
    lengths = compute.binary_length(column.dictionary).take(column.indices)
    return int(column.indices.nbytes) + int(compute.sum(lengths.cast("int64")).as_py() or 0)


def _check_size(metadata: Any, names: set[str], most_values: int) -> None:
    # A file of some kilobytes can hold a billion equal values: its size says nothing of the memory that reading takes.
    if metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has {metadata.num_rows} rows, more than {MOST_ROWS}")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    # The path of a column of lists is, for example, "map_label.list.element".
    read = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in names]
    values = sum(chunk.num_values for chunk in read)
    if values > most_values:
        raise ValueError(f"it has {values} values, more than {most_values}")
    _check_bytes(sum(chunk.total_uncompressed_size for chunk in read))


def _check_bytes(count: int) -> None:
    if count > MOST_BYTES:
        raise ValueError(f"its columns have more than {MOST_BYTES / 1e6:.0f} MB")
