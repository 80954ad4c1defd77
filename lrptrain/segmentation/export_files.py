"""The files of an export of seeds and pseudo-masks, in the layout of PASCAL VOC with an index.

    settings.json                         how it was made: an export continues with the same settings only
    thresholds.json                       of the background, where they were chosen on validation images
    classes.json                          names of the classes; 1 + index is the value in a mask
    index.jsonl                           a line per image: name, split, classes, size, status, reason
    index.<rank>.jsonl                    the same while a process writes
    SegmentationSeeds/<name>.png          seeds before refinement: 0 background, 1 + class
    SegmentationRefined/<name>.png        refined maps at one threshold: 0 background, 1 + class
    SegmentationClass/<name>.png          pseudo-masks: 0 background, 1 + class, 255 ignored
    JPEGImages/<name>.jpg                 the image
    truth/SegmentationClass/<name>.png    the true mask, where it is known
    ImageSets/Segmentation/<split>.txt    names of the images that are done; in truth/ of those with a true mask
    scores.json                           mean IoU of seeds and masks by split, where true masks are known
    image_scores.json                     the same of each image by its name

An image has the name of its `sample_id` if that is a string, else `<split>_<number>`. Masks are PNGs with the palette
of VOC. Every file is written aside and renamed; an image's line comes last, so that an image that has one is whole.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from lrptrain.data.pictures import write_image, write_mask
from lrptrain.files import (
    append_json_line,
    file_name_of,
    is_file_name,
    read_text,
    read_whole,
    to_json,
    write_json,
    write_text,
)

SEEDS = "SegmentationSeeds"
REFINED = "SegmentationRefined"
MASKS = "SegmentationClass"
JPEG_IMAGES = "JPEGImages"
TRUTH = f"truth/{MASKS}"
LISTS = "ImageSets/Segmentation"
IMAGE_SCORES = "image_scores.json"


@dataclass(frozen=True)
class Entry:
    """A line of the index: name of the image's files, classes that have maps, height and width of the masks."""

    name: str
    split: str
    classes: tuple[int, ...]
    size: tuple[int, int]
    status: Literal["done", "skipped"] = "done"
    reason: str = ""


def begin_export(folder: Path, settings: Mapping[str, Any], classes: Sequence[str]) -> None:
    """Start an export, or continue with one."""
    for name, value in (("settings", dict(settings)), ("classes", list(classes))):
        path = folder / f"{name}.json"
        # As the file gives it back (tuples as lists, say), so that equal settings compare equal.
        wanted = json.loads(to_json(value))
        if not path.exists():
            write_json(path, wanted)
        elif (saved := read_json_file(path)) != wanted:
            pairs = [("", saved, wanted)]
            if isinstance(saved, dict):
                pairs = [(f"{key} ", saved.get(key), wanted.get(key)) for key in {**saved, **wanted}]
            told = ", ".join(f"{key}{old!r}, not {new!r}" for key, old, new in pairs if old != new)
            raise ValueError(f"{folder} holds an export with other {name}: {told}; delete it or name another folder")


def write_image_files(folder: Path, entry: Entry, pictures: Mapping[str, Tensor], rank: int = 0) -> Entry:
    """Write an image's files, then its line.

    `pictures` has the masks, `[height, width]` of uint8, by `SEEDS`, `REFINED`, `MASKS` and, where it is known,
    `TRUTH`; and the image, `[3, height, width]` in 0..1, by `JPEG_IMAGES`.
    """
    for kind, picture in pictures.items():
        write, ending = (write_image, "jpg") if kind == JPEG_IMAGES else (write_mask, "png")
        write(folder / kind / f"{entry.name}.{ending}", picture)
    return append_entry(folder, entry, rank)


def append_entry(folder: Path, entry: Entry, rank: int = 0) -> Entry:
    """Add a line to this process' part of the index."""
    folder.mkdir(parents=True, exist_ok=True)
    append_json_line(folder / f"index.{rank}.jsonl", asdict(entry))
    return entry


def image_name(sample_id: int | str, split: str) -> str:
    """Return the name of an image's files: the quoted `sample_id` if it is a string, else `<split>_<number>`."""
    return file_name_of(sample_id) if isinstance(sample_id, str) else f"{split}_{sample_id:06d}"


def merge_index(folder: Path) -> list[Entry]:
    """Merge the processes' parts of the index, write the lists of the images that are done, and return all entries.

    One process calls it when all have written.
    """
    entries = read_index(folder)
    write_text(folder / "index.jsonl", "".join(f"{to_json(asdict(entry))}\n" for entry in entries))
    with_truth = {path.stem for path in (folder / TRUTH).glob("*.png")}
    for split in {entry.split for entry in entries}:
        names = [entry.name for entry in entries if entry.split == split and entry.status == "done"]
        for root, listed in ((folder, names), (folder / "truth", [name for name in names if name in with_truth])):
            if listed:
                write_text(root / LISTS / f"{split}.txt", "".join(f"{name}\n" for name in listed))
    for part in _parts(folder):
        part.unlink()
    return entries


def read_index(folder: Path) -> list[Entry]:
    """Return the entries of all images, ordered by name.

    The last line of an image counts, and a half-written line does not. An image that is done stays done where a later
    line says that it was skipped.
    """
    entries: dict[str, Entry] = {}
    for path in (folder / "index.jsonl", *_parts(folder)):
        for line in read_text(path).splitlines() if path.exists() else ():
            entry = _parse_line(line)
            if entry is not None and not (entry.status == "skipped" and entry.name in entries):
                entries[entry.name] = entry
    return [entries[name] for name in sorted(entries)]


def finished_names(folder: Path) -> set[str]:
    """Return the names of the images that are done and have all their files: they are not exported again."""
    # The index alone is not enough: files may have been deleted since.
    stems = [{path.stem for path in (folder / kind).glob("*.png")} for kind in (SEEDS, REFINED, MASKS)]
    return {entry.name for entry in read_index(folder) if entry.status == "done"}.intersection(*stems)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("index.*.jsonl"))


def _parse_line(line: str) -> Entry | None:
    try:
        fields = json.loads(line)
        entry = Entry(**{**fields, "classes": tuple(fields["classes"]), "size": (fields["size"][0], fields["size"][1])})
        # They become names of files: none of another folder.
        plain = all(map(is_file_name, (entry.name, entry.split)))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return entry if plain else None


def describe_entries(entries: Iterable[Entry]) -> str:
    """Return a sentence: how many images are done, how many were skipped, and why."""
    entries = list(entries)
    reasons = Counter(entry.reason for entry in entries if entry.status == "skipped")
    done = f"{len(entries) - reasons.total()} of {len(entries)} images done"
    return "; ".join([done, *(f"{number} skipped: {why}" for why, number in reasons.items())])


def read_json_file(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(read_whole(path))


def read_classes(folder: Path) -> list[str]:
    """Read the names of the classes."""
    return read_json_file(folder / "classes.json")
