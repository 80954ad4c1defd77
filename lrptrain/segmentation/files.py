"""The files of an export of seeds and pseudo-masks, in the layout of PASCAL VOC with an index.

    settings.json                         how it was made: an export goes on with the same settings only
    thresholds.json                       of the background, where they were chosen on validation images
    classes.json                          names of the classes; 1 + index is the value in a mask
    index.jsonl                           a line per image: name, split, classes, size, status, reason
    index.<rank>.jsonl                    the same while a process writes
    SegmentationSeeds/<name>.png          seeds before refinement: 0 background, 1 + class
    SegmentationRefined/<name>.png        refined maps at one threshold: 0 background, 1 + class
    SegmentationClass/<name>.png          pseudo-masks: 0 background, 1 + class, 255 ignored
    JPEGImages/<name>.jpg                 the image
    truth/SegmentationClass/<name>.png    the true mask, where it is known
    maps/<name>.npz                       `maps` float16 [classes, height, width] in 0..1, `classes`: their numbers
    ImageSets/Segmentation/<split>.txt    names of the images that are done; in truth/ of those with a true mask
    scores.json                           mean IoU of seeds and masks by split, where true masks are known

An image has the name of its `sample_id` if that is a string, else `<split>_<number>`. Masks are PNGs with the palette
of VOC. Every file is written aside and renamed; an image's line comes last, so that an image that has one is whole.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from lrptrain.files import append_json_line, file_name_of, to_json, write_atomically, write_json, write_text
from lrptrain.segmentation.mask_files import write_image, write_mask

SEEDS, REFINED, MASKS, IMAGES, MAPS = (
    "SegmentationSeeds", "SegmentationRefined", "SegmentationClass", "JPEGImages", "maps",
)  # fmt: skip
TRUTH = f"truth/{MASKS}"
LISTS = "ImageSets/Segmentation"


@dataclass(frozen=True)
class Entry:
    """A line of the index.

    Attributes:
        name: Of the image's files, without an ending.
        split: In whose list the image is.
        classes: Which classes have maps.
        size: Height and width of the masks.
        status: Whether the image was exported or skipped.
        reason: Why it was skipped.
    """

    name: str
    split: str
    classes: tuple[int, ...]
    size: tuple[int, int]
    status: Literal["done", "skipped"] = "done"
    reason: str = ""


@dataclass(frozen=True)
class Exported:
    """What is exported of one image.

    Attributes:
        name: Of the files, see `image_name`.
        split: In whose list the image is.
        classes: Numbers of the classes that have maps.
        maps: Of these classes, at the image's size, after refinement.
        seeds: Before refinement.
        refined: After it, at one threshold.
        mask: The pseudo-mask.
        image: In 0..1.
        truth: The true mask.
    """

    name: str
    split: str
    classes: Sequence[int]
    maps: Float[Tensor, "classes height width"]
    seeds: UInt8[Tensor, "height width"]
    refined: UInt8[Tensor, "height width"]
    mask: UInt8[Tensor, "height width"]
    image: Float[Tensor, "3 height width"] | None = None
    truth: UInt8[Tensor, "height width"] | None = None


def begin(folder: Path, settings: Mapping[str, Any], classes: Sequence[str]) -> None:
    """Start an export, or go on with one.

    Raises:
        ValueError: If the folder holds an export with other settings or classes.
    """
    for name, value in (("settings", dict(settings)), ("classes", list(classes))):
        path, wanted = folder / f"{name}.json", json.loads(to_json(value))
        if not path.exists():
            write_json(path, wanted)
        elif (known := read_json(path)) != wanted:
            raise ValueError(
                f"{folder} holds an export with other {name}: {_differing(known, wanted)}; delete it or name another "
                "folder"
            )


def _differing(known: Any, wanted: Any) -> str:
    if isinstance(known, dict) and isinstance(wanted, dict):
        names = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
        return ", ".join(f"{name} {known.get(name)!r}, not {wanted.get(name)!r}" for name in names)
    return f"{known!r}, not {wanted!r}"


def write(folder: Path, given: Exported, map_size: tuple[int, int] | None = None, rank: int = 0) -> Entry:
    """Write an image's files, then its line.

    Args:
        folder: Of the export.
        given: What is known of the image.
        map_size: Height and width to which the maps are reduced; larger than they are has no effect.
        rank: Of this process.
    """
    name = given.name
    masks = {SEEDS: given.seeds, REFINED: given.refined, MASKS: given.mask, TRUTH: given.truth}
    for kind, mask in masks.items():
        if mask is not None:
            write_mask(folder / kind / f"{name}.png", mask)
    if given.image is not None:
        write_image(folder / IMAGES / f"{name}.jpg", given.image)
    maps = given.maps.detach().cpu().float()
    if map_size is not None and map_size[0] * map_size[1] < maps.shape[-2] * maps.shape[-1]:
        maps = F.interpolate(maps[None], map_size, mode="bilinear", antialias=True)[0].clamp(0, 1)
    arrays: dict[str, Any] = {
        "maps": maps.numpy().astype(np.float16),
        "classes": np.asarray(given.classes, dtype=np.int64),
    }
    write_atomically(folder / MAPS / f"{name}.npz", partial(_save_arrays, arrays))
    size = (given.mask.shape[-2], given.mask.shape[-1])
    return add(folder, Entry(name, given.split, tuple(given.classes), size), rank)


def add(folder: Path, entry: Entry, rank: int = 0) -> Entry:
    """Add a line to this process' part of the index."""
    folder.mkdir(parents=True, exist_ok=True)
    append_json_line(folder / f"index.{rank}.jsonl", asdict(entry))
    return entry


def skipped(name: str, split: str, size: tuple[int, int], reason: str) -> Entry:
    """The line of an image that has no mask."""
    return Entry(name, split, (), size, "skipped", reason)


def image_name(sample_id: int | str, split: str) -> str:
    """The name of an image's files: numbers are those of a split."""
    return file_name_of(sample_id) if isinstance(sample_id, str) else f"{split}_{sample_id:06d}"


def merge(folder: Path) -> list[Entry]:
    """Bring the parts of the index together and list what is done; for one process, when all have written.

    Returns:
        All entries, by name.
    """
    entries = read_index(folder)
    lines = "".join(f"{to_json(asdict(entry))}\n" for entry in entries)
    write_text(folder / "index.jsonl", lines)
    known = {path.stem for path in (folder / TRUTH).glob("*.png")}
    done = [entry for entry in entries if entry.status == "done"]
    for split in {entry.split for entry in entries}:
        names = [one.name for one in done if one.split == split]
        _write_list(folder / LISTS / f"{split}.txt", names)
        _write_list(folder / "truth" / LISTS / f"{split}.txt", [name for name in names if name in known])
    for part in _parts(folder):
        part.unlink()
    return entries


def read_index(folder: Path) -> list[Entry]:
    """All lines of an export, by name; the last one of an image counts, and a half-written one does not.

    An image that is done stays so where a later line says that it was skipped.
    """
    found: dict[str, Entry] = {}
    for path in (folder / "index.jsonl", *_parts(folder)):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            entry = _parsed(line)
            if entry is not None and not (entry.status == "skipped" and entry.name in found):
                found[entry.name] = entry
    return [found[name] for name in sorted(found)]


def finished(folder: Path) -> set[str]:
    """Names of the images that need not be made again: those that are done and whose files are there."""
    kinds = ((SEEDS, ".png"), (REFINED, ".png"), (MASKS, ".png"), (MAPS, ".npz"))
    there = [{path.stem for path in (folder / kind).glob(f"*{ending}")} for kind, ending in kinds]
    return {entry.name for entry in read_index(folder) if entry.status == "done"}.intersection(*there)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("index.*.jsonl"))


def _parsed(line: str) -> Entry | None:
    try:
        known = json.loads(line)
        return Entry(**{**known, "classes": tuple(known["classes"]), "size": (known["size"][0], known["size"][1])})
    except (ValueError, TypeError, KeyError):
        return None


def read_maps(folder: Path, name: str) -> tuple[Float[Tensor, "classes height width"], tuple[int, ...]]:
    """An image's maps in 0..1, and the numbers of their classes.

    Raises:
        ValueError: If the file cannot be read.
    """
    path = folder / MAPS / f"{name}.npz"
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            maps, classes = arrays["maps"], arrays["classes"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(f"cannot read the maps {path}: {error}") from error
    return torch.from_numpy(maps.astype(np.float32)), tuple(classes.tolist())


def read_classes(folder: Path) -> list[str]:
    """Names of the classes."""
    return read_json(folder / "classes.json")


def counted(entries: Iterable[Entry]) -> str:
    """In words: how many are done, how many were skipped and why."""
    entries = list(entries)
    reasons: dict[str, int] = {}
    for entry in entries:
        if entry.status == "skipped":
            reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    done = sum(entry.status == "done" for entry in entries)
    return "; ".join([f"{done} of {len(entries)} images done", *(f"{n} skipped: {why}" for why, n in reasons.items())])


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def _write_list(path: Path, names: Sequence[str]) -> None:
    if names:
        write_text(path, "".join(f"{name}\n" for name in names))


def _save_arrays(arrays: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
