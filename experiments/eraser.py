"""Documents with their rationales, in the format of ERASER (DeYoung et al. 2020) for one document a record."""

import json
from pathlib import Path
from typing import Any

from lrptrain.data.common import class_names
from lrptrain.data.texts import Example


def read_split(folder: Path, split: str) -> list[Example]:
    """Return the documents of a split, in `<split>.jsonl` and `docs/`; of one without evidence the spans are None."""
    records = [json.loads(line) for line in (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]
    names = class_names(record["classification"] for record in records)
    return [_example(record, folder / "docs", names.index(record["classification"])) for record in records]


def _example(record: dict[str, Any], documents: Path, label: int) -> Example:
    """Return the tokens of a record's document, joined by blanks, with the characters of its evidence."""
    words = (documents / record["annotation_id"]).read_text(encoding="utf-8").split()
    # The first character of each word, and where a further one would start: "a bc" gives [0, 2, 5].
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    parts = [part for group in record["evidences"] for part in group]
    assert all(part["docid"] == record["annotation_id"] for part in parts)
    spans = [(part["start_token"], part["end_token"]) for part in parts]
    # The test split of Movies has an empty one.
    marked = tuple((starts[first], starts[end] - 1) for first, end in spans if first < end)
    return Example(" ".join(words), label, marked or None)
