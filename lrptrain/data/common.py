"""What the datamodules share: tables, class names, stratified splits, loaders."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from jaxtyping import Int
from torch.utils.data import DataLoader, Dataset

from lrptrain.extras import require
from lrptrain.files import read_whole

CsvRow = dict[str, str]
SPLITS = ("train", "val", "test")
"""Names of the splits, in the order in which `splits` arguments give them."""


def read_csv(path: str | Path, columns: Iterable[str | None]) -> list[CsvRow]:
    """Read a CSV file with a header line.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column is missing, the file has no rows, or a row has fewer fields than the header.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no CSV file at {path}")
    try:
        reader = csv.DictReader(io.StringIO(read_whole(path).decode("utf-8-sig"), newline=""), restval=None)
        rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from error
    header = list(reader.fieldnames or ())
    missing = [column for column in columns if column is not None and column not in header]
    if missing:
        raise ValueError(f"{path} has no column {missing}; it has {header}")
    if not rows:
        raise ValueError(f"{path} has no rows")
    short = [number for number, row in enumerate(rows, start=1) if None in row.values()]
    if short:
        raise ValueError(f"{path}: data rows {short[:5]} have fewer fields than the header {header}")
    return rows


def class_names(values: Iterable[str], wanted: Sequence[str] | None = None) -> list[str]:
    """Return the classes in the order of their index: `wanted`, else all sorted (numerically if all are numbers)."""
    labels = set(values)
    absent = [name for name in wanted or () if name not in labels]
    if absent:
        raise ValueError(f"no row has the label {absent}; the labels are {sorted(labels)}")
    numeric = all(name.isdecimal() for name in labels)
    names = list(wanted) if wanted is not None else sorted(labels, key=int if numeric else str)
    if len(names) < 2:
        raise ValueError(f"a classifier needs at least two classes, got {names}")
    return names


def stratified_split(
    labels: Sequence[int] | Int[np.ndarray, " samples"], val_share: float, seed: int
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " val"]]:
    """Return sorted, disjoint train and validation indices, with each class in both by its share."""
    if not 0 < val_share < 1:
        raise ValueError(f"val_share must lie between 0 and 1, got {val_share}")
    split = require("sklearn.model_selection", "data").train_test_split
    train, val = split(np.arange(len(labels)), test_size=val_share, stratify=labels, random_state=seed)
    return np.sort(train), np.sort(val)


class SplitDataModule(pl.LightningDataModule):
    """What datamodules share: a loader for each split; a subclass fills `class_names` and `splits` in `setup`.

    Args:
        batch_size: Samples per batch.
        num_workers: Worker processes of each loader.

    Attributes:
        class_names: Names of the classes in the order of their index.
        splits: The samples of `train`, `val` and, if there are some, `test`; empty before `setup`.
    """

    def __init__(self, batch_size: int, num_workers: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.class_names: list[str] = []
        self.splits: dict[str, Any] = {}

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 before they are known."""
        return len(self.class_names)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of shuffled training samples."""
        return self.loader_of("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the validation samples in their order."""
        return self.loader_of("val")

    def test_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Return a loader of the test samples in their order; none where there are none."""
        return self.loader_of("test") if "test" in self.splits else []

    def loader_of(self, split: str, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader of one of `splits`."""
        return loader(self.splits[split], self.batch_size, self.num_workers, shuffle)


def loader(
    dataset: Dataset[Any],
    batch_size: int,
    num_workers: int = 0,
    shuffle: bool = False,
    collate: Callable[[list[Any]], dict[str, Any]] | None = None,
) -> DataLoader[Any]:
    """Return a DataLoader of which the workers, if any, live as long as it does."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        collate_fn=collate,
    )
