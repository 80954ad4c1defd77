"""Documents with their rationales in the format of the ERASER benchmark."""

import json
from pathlib import Path
from typing import Any

from lrptrain.data.common import SPLITS, class_names
from lrptrain.data.texts import Example, TextDataModule, fast_tokenizer
from lrptrain.files import is_file_name, read_text


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a `.jsonl` file of ERASER.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is empty, or a line is no JSON object with an id, a class and evidence.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no annotations at {path}: an ERASER folder holds train, val and test.jsonl and docs/")
    records = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is no JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number} is no JSON object")
        missing = [name for name in ("annotation_id", "classification", "evidences") if name not in record]
        if missing:
            raise ValueError(f"{path}, line {number} lacks {missing}; it has {sorted(record)}")
        records.append(record)
    if not records:
        raise ValueError(f"{path} has no records")
    return records


def read_document(record: dict[str, Any], documents: Path, label: int) -> Example:
    """Read the text of a record, its tokens joined by blanks, with the characters of its evidence.

    Raises:
        FileNotFoundError: The document is missing.
        ValueError: Evidence lies in another document (as in ERASER's tasks of several documents) or outside of it.
    """
    name = record["annotation_id"]
    if not isinstance(name, str) or not is_file_name(name):
        raise ValueError(f"{name!r} is no name of a document in {documents}")
    path = documents / name
    if not path.is_file():
        raise FileNotFoundError(f"no document at {path}")
    words = read_text(path).split()
    # The first character of each word, and where a further one would start: "a bc" gives [0, 2, 5].
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    spans = []
    for evidence in (part for group in record["evidences"] for part in group):
        first = evidence["start_token"]
        end = evidence["end_token"]
        if evidence["docid"] != name:
            raise ValueError(f"{name}: evidence in the document {evidence['docid']!r}; only its own can be read")
        if not 0 <= first <= end <= len(words):
            raise ValueError(f"{name}: evidence is 0 <= start_token <= end_token <= {len(words)}, got {(first, end)}")
        if first < end:  # the test split of Movies has an empty one
            spans.append((starts[first], starts[end] - 1))
    return Example(" ".join(words), label, tuple(spans) or None)


class EraserDocuments(TextDataModule):
    """Documents, labels and token-level rationales of a single-document task of ERASER, for example Movies.

    DeYoung et al. 2020 (ACL). A record without evidence has no annotation. `class_names` and `num_classes` are known
    after `setup`.

    Args:
        path: Folder with `train.jsonl`, `val.jsonl`, `test.jsonl`, and the tokenised documents in `docs/`.
        tokenizer: Folder or hub name of a fast tokenizer, or `"minilm"`.
        max_length: Tokens at most, special ones included; what is behind them is cut off.
        batch_size: Documents per batch.
        num_workers: Worker processes for loading.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str = "minilm",
        max_length: int = 512,
        batch_size: int = 8,
        num_workers: int = 0,
    ) -> None:
        super().__init__(tokenizer, max_length, batch_size, num_workers)
        self.save_hyperparameters(logger=False)
        self.path = Path(path)

    def setup(self, stage: str | None = None) -> None:
        """Read the documents of all splits and load the tokenizer, once.

        Raises:
            FileNotFoundError: A split or a document is missing.
            OSError: If the tokenizer can be found neither locally nor on the hub.
            ValueError: A record cannot be read, a class is unknown to the training split, or the tokenizer is not a
                fast one.
        """
        if self.splits:
            return
        self.tokenizer = fast_tokenizer(self.tokenizer_source)
        records = {split: read_records(self.path / f"{split}.jsonl") for split in SPLITS}
        self.class_names = class_names(record["classification"] for record in records["train"])
        self.splits = {split: [self._example(record) for record in rows] for split, rows in records.items()}

    def _example(self, record: dict[str, Any]) -> Example:
        if record["classification"] not in self.class_names:
            raise ValueError(
                f"{record['annotation_id']}: the class {record['classification']!r} does not occur in the training "
                f"split, which has {self.class_names}"
            )
        return read_document(record, self.path / "docs", self.class_names.index(record["classification"]))
