"""Files that would fill the memory are not read."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from lrptrain.dashboard.samples import read_sample_table
from lrptrain.loggers import tables

EVALUATION = "epoch_0000_step_000001.parquet"


def write(folder, columns, **options):
    path = folder / "samples" / EVALUATION
    path.parent.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd", **options)
    return path


def repeated(text, rows):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(rows, np.int32)), pyarrow.array([text]))


def same_text(rows=100_000):
    """Eight gigabytes of text, of which the file holds one copy."""
    return {"sample_id": np.arange(rows), "label": repeated("x" * 80_000, rows)}


def large_texts(rows=205):
    return {"sample_id": np.arange(rows), "label": [f"{row}" + "y" * 2_000_000 for row in range(rows)]}


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"sample_id": np.zeros(tables.MOST_ROWS + 1, np.int8)}, {}, "it has 1000001 rows, more than 1000000"),
        (same_text(), {"store_schema": False}, "its columns have more than 400 MB"),
        (large_texts(), {"use_dictionary": False}, "its columns have more than 400 MB"),
        (
            {"sample_id": np.arange(600_000)} | {f"score{i}": np.zeros(600_000) for i in range(9)},
            {},
            "it has 6000000 values, more than 5000000",
        ),
    ],
)
def test_a_small_file_that_holds_much_is_passed_over(columns, options, says, tmp_path):
    path = write(tmp_path, columns, **options)
    assert path.stat().st_size < 3e6
    table = read_sample_table(tmp_path)
    assert table["evaluation"] is None
    assert says in table["notes"][0]


def test_little_memory_is_enough_to_refuse_it(tmp_path):
    write(tmp_path, same_text(), store_schema=False)
    # What the process itself took at most: Linux tells it in kilobytes, apart from what its parent took.
    code = (
        "import sys; from pathlib import Path; from lrptrain.dashboard.samples import read_sample_table\n"
        "print(read_sample_table(Path(sys.argv[1]))['notes'], Path('/proc/self/status').read_text())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "more than 400 MB" in done.stdout
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert int(kilobytes) < 1_000_000


def test_the_values_of_the_columns_that_are_read_count(tmp_path):
    path = tmp_path / "table.parquet"
    lists = pyarrow.array([np.zeros(600), np.zeros(600)])
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "map_label": lists, "b": lists}), path)
    assert tables.read_columns(path, ["a", "map_label"], 1300).num_rows == 2
    with pytest.raises(ValueError, match="it has 2400 values, more than 1300"):
        tables.read_columns(path, ["map_label", "b"], 1300)


@pytest.mark.parametrize("rows", [0, 1, 700])
def test_what_is_read_is_what_was_written(rows, tmp_path):
    texts = [None if row % 7 == 3 else f"text {row % 5}" for row in range(rows)]
    maps = pyarrow.array(
        [np.arange(row % 4, dtype=np.float32) for row in range(rows)], pyarrow.list_(pyarrow.float32())
    )
    columns = {
        "sample_id": pyarrow.array(range(rows), pyarrow.int64()),
        "text": pyarrow.array(texts, pyarrow.string()),
        "long": pyarrow.array(texts, pyarrow.large_string()),
        "map_label": maps,
    }
    written = pyarrow.table(columns)
    pyarrow.parquet.write_table(written, tmp_path / "table.parquet", row_group_size=300)
    assert tables.read_columns(tmp_path / "table.parquet").equals(written)
