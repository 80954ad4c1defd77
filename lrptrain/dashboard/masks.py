"""An export of seeds and pseudo-masks, page by page; `lrptrain.segmentation.export_files` describes its files."""

import json
import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lrptrain.dashboard.runs import file_in, find_exports, read_json_or_note
from lrptrain.dashboard.samples import stamped
from lrptrain.files import read_whole

PICTURE_KINDS = {
    "image": ("JPEGImages", ".jpg"),
    "seeds": ("SegmentationSeeds", ".png"),
    "refined": ("SegmentationRefined", ".png"),
    "mask": ("SegmentationClass", ".png"),
    "truth": ("truth/SegmentationClass", ".png"),
}
"""The folder and the ending of each kind of picture that an image has."""
MOST_SHOWN = 24
IMAGE_SCORES = "image_scores.json"
# The kinds by their names in scores.json.
_SCORED = {"seeds": "seeds", "refined": "refined", "masks": "mask"}
# How a whole file of the format begins and ends.
_ENDS = {".jpg": (b"\xff\xd8\xff", b"\xff\xd9"), ".png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82")}
_Entry = dict[str, Any]


def read_masks(
    folder: Path,
    export: str = "",
    split: str = "",
    of_class: str = "",
    status: str = "",
    sort: str = "",
    page: int = 0,
) -> dict[str, Any]:
    """A page of an export: what is done first, then what was skipped, by name or by IoU.

    Args:
        folder: Folder of the run.
        export: Path of the export in it; any other for the first that `find_exports` names.
        split: Only of this split; empty for all.
        of_class: Only with masks of the class of this number; empty for all.
        status: Only "done" or "skipped"; empty for both.
        sort: By the mean IoU of "seeds", "refined" or "mask", the least first, with a "-" before it the largest first;
            images without one come last. By name for anything else.
        page: Number of the page from 0; any number past the end means the last page.

    Returns:
        `export`, or None if there is none; `exports`; `classes`: with `name` and `color`; `counts` of all images by
        `status`, `split`, `class` (its number) and `reason`; `scores`: mean IoU by split and kind; `found`: how many
        the filters leave; `page`, `pages`; `rows` of at most 24 images: `name`, `title`, `split`, `classes`, `size`,
        `status`, `reason`, `iou` by kind in 0..1, where it is known, and `pictures`, the kinds that are there; and
        `notes`.
    """
    exports = find_exports(folder)
    notes: list[str] = []
    chosen = export if export in exports else next(iter(exports), None)
    entries = _entries(folder, chosen, notes) if chosen is not None else []
    image_scores = _image_scores(folder, chosen, notes)
    fitting = _sorted([entry for entry in entries if _fits(entry, split, of_class, status)], image_scores, sort)
    pages = max(1, -(-len(fitting) // MOST_SHOWN))  # rounded up
    page = min(max(page, 0), pages - 1)
    # Only the images of this page are looked for on the disk: an export may have 100 000.
    rows = [
        {**_row(folder, chosen or "", entry), "iou": image_scores.get(entry["name"], {})}
        for entry in fitting[page * MOST_SHOWN : (page + 1) * MOST_SHOWN]
    ]
    if lacking := sum(
        entry["status"] == "done" and not set(PICTURE_KINDS) - {"image", "truth"} <= {*entry["pictures"]}
        for entry in rows
    ):
        notes.append(f"{lacking} of the {len(rows)} images shown lack a mask, or have one that is damaged.")
    return {
        "export": chosen,
        "exports": exports,
        "classes": _classes(folder, chosen, entries, notes) if chosen is not None else [],
        "counts": _counts(entries),
        "scores": _scores(read_json_or_note(file_in(folder, chosen, "scores.json"), notes))
        if chosen is not None
        else {},
        "found": len(fitting),
        "page": page,
        "pages": pages,
        "rows": rows,
        "notes": notes,
    }


def mask_picture(folder: Path, export: str, kind: str, name: str) -> Path | None:
    """A picture of an export; None if there is none, or if it is not whole.

    Args:
        folder: Folder of the run.
        export: Path of the export in it.
        kind: A key of `PICTURE_KINDS`.
        name: Name of the image, as in the index.
    """
    exists = kind in PICTURE_KINDS and export in find_exports(folder)
    return _picture(folder, export, kind, name) if exists else None


def _picture(folder: Path, export: str, kind: str, name: str) -> Path | None:
    if "/" in name or "\\" in name:  # names of an index are quoted: this one would lead to another folder
        return None
    within, ending = PICTURE_KINDS[kind]
    path = file_in(folder, export, within, f"{name}{ending}")
    return path if path is not None and _is_complete(path) else None


def _is_complete(path: Path) -> bool:
    first, last = _ENDS[path.suffix]
    # A process that was killed while it wrote leaves a file without an end, which a browser would show in part.
    try:
        with path.open("rb") as file:
            begins = file.read(len(first)) == first
            file.seek(max(0, path.stat().st_size - len(last)))
            return begins and file.read() == last
    except OSError:
        return False


def _entries(folder: Path, export: str, notes: list[str]) -> list[_Entry]:
    """The lines of the index; the last one of an image counts, but what is done stays so."""
    # While an export is written, each process has a part: index.0.jsonl, index.1.jsonl ...; at the end they are merged.
    merged = file_in(folder, export, "index.jsonl")
    parts = [file_in(folder, export, path.name) for path in sorted((folder / export).glob("index.*.jsonl"))]
    if any(parts):
        notes.append("This export is being written, or was cut off: these are the images so far.")
    by_name: dict[str, _Entry] = {}
    for path in (merged, *parts):
        try:
            entries, foreign = _lines(*stamped(path)) if path is not None else ([], 0)
        except OSError:  # merged meanwhile
            continue
        if path is not None and foreign:
            notes.append(
                f"{foreign} of {len(entries) + foreign} lines of {path.name} are no images and were passed over."
            )
        for entry in entries:
            # An export that is started again meets images that are done, and must not count them as skipped.
            if not (entry["status"] == "skipped" and entry["name"] in by_name):
                by_name[entry["name"]] = entry
    return sorted(by_name.values(), key=lambda entry: (entry["status"], entry["name"]))


@lru_cache(maxsize=16)
def _lines(path: Path, changed: int, size: int) -> tuple[list[_Entry], int]:
    """Return the entries of a part of the index, and the number of lines that are none."""
    lines = [line for line in read_whole(path).split(b"\n") if line.strip()]
    parsed = [_entry(line) for line in lines]
    return [entry for entry in parsed if entry is not None], parsed.count(None)


def _entry(line: bytes) -> _Entry | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or values.get("status", "done") not in ("done", "skipped"):
        return None
    # For example {"name": "2007_000032", "split": "train", "classes": [0, 14], "size": [281, 500]}.
    texts = {"name": values.get("name"), "split": values.get("split"), "reason": values.get("reason", "")}
    numbers = {"classes": values.get("classes"), "size": values.get("size")}
    plain = all(isinstance(text, str) for text in texts.values()) and all(map(_are_counts, numbers.values()))
    return (
        {**texts, **numbers, "status": values.get("status", "done")}
        if plain and len(numbers["size"] or ()) == 2
        else None
    )


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _fits(entry: _Entry, split: str, of_class: str, status: str) -> bool:
    # Classes are numbers in the index, and text in a request.
    in_class = not of_class or of_class in map(str, entry["classes"])
    return in_class and split in ("", entry["split"]) and status in ("", entry["status"])


def _image_scores(folder: Path, export: str | None, notes: list[str]) -> dict[str, dict[str, float]]:
    """Mean IoU by the name of the image, then by kind; empty where there are no true masks."""
    path = file_in(folder, export, IMAGE_SCORES) if export is not None else None
    try:
        return _read_image_scores(*stamped(path)) if path is not None else {}
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{IMAGE_SCORES} cannot be read and was passed over: {error}")
        return {}


@lru_cache(maxsize=16)
def _read_image_scores(path: Path, changed: int, size: int) -> dict[str, dict[str, float]]:
    content = json.loads(read_whole(path))
    return {
        name: {
            kind: scores[column]
            for column, kind in _SCORED.items()
            # nan, of an image of which nothing is decided, is no score.
            if isinstance(scores.get(column), int | float) and 0 <= scores[column] <= 1
        }
        for name, scores in (content.items() if isinstance(content, dict) else ())
        if isinstance(scores, dict)
    }


def _sorted(entries: list[_Entry], scores: dict[str, dict[str, float]], by: str) -> list[_Entry]:
    kind = by.removeprefix("-")
    if kind not in _SCORED.values():
        return entries
    sign = -1 if by.startswith("-") else 1
    # The sign is there twice: without an IoU the key is infinite in both directions, and such images come last.
    return sorted(entries, key=lambda entry: sign * scores.get(entry["name"], {}).get(kind, sign * math.inf))


def _row(folder: Path, export: str, entry: _Entry) -> dict[str, Any]:
    pictures = [kind for kind in PICTURE_KINDS if _picture(folder, export, kind, entry["name"]) is not None]
    return {**entry, "title": unquote(entry["name"]), "pictures": pictures}


def _counts(entries: list[_Entry]) -> dict[str, dict[str, int]]:
    def of(values: Callable[[_Entry], list[Any]]) -> dict[str, int]:
        return dict(sorted(Counter(value for entry in entries for value in values(entry)).items()))

    classes = of(lambda entry: list(set(entry["classes"])))
    return {
        "status": of(lambda entry: [entry["status"]]),
        "split": of(lambda entry: [entry["split"]]),
        "class": {str(number): count for number, count in classes.items()},
        "reason": of(lambda entry: [entry["reason"]] if entry["status"] == "skipped" else []),
    }


def _classes(folder: Path, export: str, entries: list[_Entry], notes: list[str]) -> list[dict[str, str]]:
    """Name and colour of each class; by number where there is no name."""
    content = read_json_or_note(file_in(folder, export, "classes.json"), notes)
    names = [str(name) for name in content] if isinstance(content, list) else []
    most = max((number for entry in entries for number in entry["classes"] if number < 255), default=-1)
    # 255 is the value of ignored pixels, no class.
    names += [f"class {number}" for number in range(len(names), most + 1)]
    return [{"name": name, "color": _color(1 + number)} for number, name in enumerate(names)]


def _color(value: int) -> str:
    """The colour of a value in a mask: its bits go to red, green and blue in turn, the lowest to the highest place."""
    # VOC's palette: 1 = 001 in binary sets the highest bit of red (128, 0, 0), 3 = 011 those of red and green, and
    # 8 = 1000 the second highest bit of red (64, 0, 0).
    levels = [sum((value >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(8)) for channel in range(3)]
    return "#{:02x}{:02x}{:02x}".format(*levels)


def _scores(content: Any) -> dict[str, dict[str, float]]:
    """Mean IoU by split, then by kind."""
    means: dict[str, dict[str, float]] = {}
    for split, scores in content.items() if isinstance(content, dict) else ():
        for name, kind in _SCORED.items():
            score = scores.get(name) if isinstance(scores, dict) else None
            mean = score.get("mean_iou") if isinstance(score, dict) else None
            if isinstance(mean, int | float) and not isinstance(mean, bool):
                means.setdefault(split, {})[kind] = mean
    return means
