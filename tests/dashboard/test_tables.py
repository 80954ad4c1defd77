"""Files that would fill the memory are not read."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from lrptrain.dashboard import tables
from lrptrain.dashboard.samples import read_sample_table


def test_a_small_file_of_many_rows_is_passed_over(tmp_path):
    path = tmp_path / "samples" / "epoch_0000_step_000001.parquet"
    path.parent.mkdir()
    column = pyarrow.array(np.zeros(tables.MOST_ROWS + 1, np.int8))
    pyarrow.parquet.write_table(pyarrow.table({"sample_id": column}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    table = read_sample_table(tmp_path)
    assert table["evaluation"] is None
    assert "it has 1000001 rows, more than 1000000" in table["notes"][0]


def test_the_values_of_the_columns_that_are_read_count(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    lists = pyarrow.array([np.zeros(600), np.zeros(600)])
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "map_label": lists, "b": lists}), path)
    monkeypatch.setattr(tables, "MOST_VALUES", 1300)
    assert tables.read_columns(path, ["a", "map_label"]).num_rows == 2
    with pytest.raises(ValueError, match="it has 2400 values, more than 1300"):
        tables.read_columns(path, ["map_label", "b"])
