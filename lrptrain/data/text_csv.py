"""Texts with the words that carry their label, from a CSV file."""

import warnings
from pathlib import Path

import numpy as np

from lrptrain.data.common import CsvRow, class_names, read_csv, stratified_split
from lrptrain.data.texts import Example, TextDataModule, fast_tokenizer
from lrptrain.terminal import WrappedWarning


def find_span(text: str, part: str) -> tuple[int, int] | None:
    """Return the characters (start, end) of the first occurrence of `part`, stripped; `None` if blank."""
    part = part.strip()
    start = text.find(part)
    if start < 0:
        raise ValueError(f"the rationale {part!r} does not occur in the text {text!r}")
    return (start, start + len(part)) if part else None


def read_span(text: str, start: str, end: str) -> tuple[int, int] | None:
    """Read characters (start, end) from two fields; `None` if both are empty."""
    if not start and not end:
        return None
    if not (start.isdecimal() and end.isdecimal() and int(start) < int(end) <= len(text)):
        raise ValueError(f"a span is 0 <= start < end <= {len(text)}, got {start!r} and {end!r} in the text {text!r}")
    return int(start), int(end)


class TextSpans(TextDataModule):
    """Texts, labels and rationale spans from one CSV file, split into training and validation by class.

    The evidence is either a substring (`rationale_column`; its first occurrence counts) or a pair of character
    positions (`span_columns`). An empty field means that the sample has no annotation. `class_names` and `num_classes`
    are known after `setup`.

    Examples:
        >>> from pathlib import Path
        >>> from lrptrain.data import TextSpans
        >>> films = [f"a {word} film,{word},{word}" for word in ("good", "bad") * 4]
        >>> _ = Path("films.csv").write_text(chr(10).join(["text,label,why", *films]))
        >>> data = TextSpans("films.csv", rationale_column="why", val_share=0.5)
        >>> data.setup()
        >>> next(iter(data.val_dataloader()))["rationale"][0].tolist()  # 255 at special tokens
        [255, 0, 1, 0, 255]

    Args:
        path: UTF-8 CSV file with a header.
        tokenizer: Folder or hub name of a fast tokenizer, or `"minilm"`.
        text_column: Column of the texts; rows with an empty text are skipped with a warning.
        label_column: Column of the class names.
        rationale_column: Column of the substring that carries the label.
        span_columns: Columns of its first character and of the one after its last, instead of `rationale_column`.
        labels: Keep only these classes, in this order; by default all of them, sorted.
        max_length: Tokens at most, special ones included.
        batch_size: Texts per batch.
        val_share: Share (0..1) of the texts kept for validation.
        limit: Use a random subset of this many texts.
        seed: Fixes the subset and the split.
        num_workers: Worker processes of each loader.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str = "minilm",
        text_column: str = "text",
        label_column: str = "label",
        rationale_column: str | None = None,
        span_columns: tuple[str, str] | None = None,
        labels: list[str] | None = None,
        max_length: int = 128,
        batch_size: int = 32,
        val_share: float = 0.2,
        limit: int | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(tokenizer, max_length, batch_size, num_workers)
        self.save_hyperparameters(logger=False)
        if rationale_column is not None and span_columns is not None:
            raise ValueError("give rationale_column or span_columns, not both")
        self.path = Path(path)
        self.text_column = text_column
        self.label_column = label_column
        self.rationale_column = rationale_column
        self.span_columns = span_columns
        self.labels = labels
        self.val_share = val_share
        self.limit = limit
        self.seed = seed

    def setup(self, stage: str | None = None) -> None:
        """Read and split the texts and load the tokenizer, once.

        Raises:
            FileNotFoundError: There is no such CSV file.
            OSError: If the tokenizer can be found neither locally nor on the hub.
            ValueError: A column or class is missing, a span is none, or the tokenizer is not a fast one.
        """
        if self.splits:
            return
        self.tokenizer = fast_tokenizer(self.tokenizer_source)
        examples = self._examples()
        train, val = stratified_split([example.label for example in examples], self.val_share, self.seed)
        self.splits = {"train": [examples[index] for index in train], "val": [examples[index] for index in val]}

    def _examples(self) -> list[Example]:
        columns = (self.text_column, self.label_column, self.rationale_column, *(self.span_columns or ()))
        rows = read_csv(self.path, columns)
        self.class_names = class_names((row[self.label_column] for row in rows), self.labels)
        labelled = [row for row in rows if row[self.label_column] in self.class_names]
        filled = [row for row in labelled if row[self.text_column].strip()]
        if len(filled) < len(labelled):
            warnings.warn(
                f"{self.path}: skipped {len(labelled) - len(filled)} rows without text", WrappedWarning, stacklevel=2
            )
        return [self._example(row) for row in self._subset(filled)]

    def _example(self, row: CsvRow) -> Example:
        text = row[self.text_column]
        span = None
        if self.rationale_column is not None:
            span = find_span(text, row[self.rationale_column])
        elif self.span_columns is not None:
            span = read_span(text, *(row[column] for column in self.span_columns))
        return Example(text, self.class_names.index(row[self.label_column]), None if span is None else (span,))

    def _subset(self, rows: list[CsvRow]) -> list[CsvRow]:
        chosen = np.random.default_rng(self.seed).permutation(len(rows))[: self.limit]
        return [rows[index] for index in np.sort(chosen)]
