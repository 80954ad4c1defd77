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
    image_scores.json                     the same of each image by its name

An image has the name of its `sample_id` if that is a string, else `<split>_<number>`. Masks are PNGs with the palette
of VOC. Every file is written aside and renamed; an image's line comes last, so that an image that has one is whole.
"""

import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from lrptrain.data.pictures import write_image, write_mask
from lrptrain.files import (
    MOST_BYTES,
    append_json_line,
    file_name_of,
    is_file_name,
    read_text,
    read_whole,
    to_json,
    write_atomically,
    write_json,
    write_text,
)

SEEDS = "SegmentationSeeds"
REFINED = "SegmentationRefined"
MASKS = "SegmentationClass"
JPEG_IMAGES = "JPEGImages"
MAPS = "maps"
TRUTH = f"truth/{MASKS}"
LISTS = "ImageSets/Segmentation"
IMAGE_SCORES = "image_scores.json"


@dataclass(frozen=True)
class Entry:
    """A line of the index.

    Attributes:
        name: Name of the image's files, without an ending.
        split: Name of the list that the image is on.
        classes: The classes that have maps.
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
class ExportedImage:
    """What is exported of one image.

    Attributes:
        name: Name of the files, see `image_name`.
        split: Name of the list that the image is on.
        classes: Numbers of the classes that have maps.
        maps: Maps of these classes after refinement, in 0..1 and at the image's size.
        seeds: Labels of the seeds: 0 background, 1 + class.
        refined: Labels of the refined maps at one threshold: 0 background, 1 + class.
        mask: The pseudo-mask: 0 background, 1 + class, 255 ignored.
        image: The image in 0..1.
        truth: The true mask; None if it is not known.
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


def begin_export(folder: Path, settings: Mapping[str, Any], classes: Sequence[str]) -> None:
    """Start an export, or go on with one.

    Raises:
        ValueError: If the folder holds an export with other settings or classes.
    """
    for name, value in (("settings", dict(settings)), ("classes", list(classes))):
        path = folder / f"{name}.json"
        # As the file gives it back (tuples as lists, say), so that equal settings compare equal.
        wanted = json.loads(to_json(value))
        if not path.exists():
            write_json(path, wanted)
        elif (saved := read_json_file(path)) != wanted:
            raise ValueError(
                f"{folder} holds an export with other {name}: {_describe_difference(saved, wanted)}; delete it or name "
                "another folder"
            )


def _describe_difference(saved: Any, wanted: Any) -> str:
    if isinstance(saved, dict) and isinstance(wanted, dict):
        names = [name for name in {**saved, **wanted} if saved.get(name) != wanted.get(name)]
        return ", ".join(f"{name} {saved.get(name)!r}, not {wanted.get(name)!r}" for name in names)
    return f"{saved!r}, not {wanted!r}"


def write_image_files(
    folder: Path, exported: ExportedImage, map_size: tuple[int, int] | None = None, rank: int = 0
) -> Entry:
    """Write an image's files, then its line.

    Args:
        folder: Folder of the export.
        exported: The image with its masks and maps.
        map_size: Height and width to which the maps are reduced; larger than they are has no effect.
        rank: Index of this process.
    """
    name = exported.name
    masks = {SEEDS: exported.seeds, REFINED: exported.refined, MASKS: exported.mask, TRUTH: exported.truth}
    for kind, mask in masks.items():
        if mask is not None:
            write_mask(folder / kind / f"{name}.png", mask)
    if exported.image is not None:
        write_image(folder / JPEG_IMAGES / f"{name}.jpg", exported.image)
    maps = exported.maps.detach().cpu().float()
    # Only ever smaller: float16 maps at the image's size would take most of the disk space.
    if map_size is not None and map_size[0] * map_size[1] < maps.shape[-2] * maps.shape[-1]:
        maps = F.interpolate(maps[None], map_size, mode="bilinear", antialias=True)[0].clamp(0, 1)
    arrays: dict[str, Any] = {
        "maps": maps.numpy().astype(np.float16),
        "classes": np.asarray(exported.classes, dtype=np.int64),
    }
    write_atomically(folder / MAPS / f"{name}.npz", partial(_save_arrays, arrays))
    size = (exported.mask.shape[-2], exported.mask.shape[-1])
    return append_entry(
        folder, Entry(name=name, split=exported.split, classes=tuple(exported.classes), size=size), rank
    )


def append_entry(folder: Path, entry: Entry, rank: int = 0) -> Entry:
    """Add a line to this process' part of the index."""
    folder.mkdir(parents=True, exist_ok=True)
    append_json_line(folder / f"index.{rank}.jsonl", asdict(entry))
    return entry


def skipped_entry(name: str, split: str, size: tuple[int, int], reason: str) -> Entry:
    """Return the line of an image that has no mask."""
    return Entry(name=name, split=split, classes=(), size=size, status="skipped", reason=reason)


def image_name(sample_id: int | str, split: str) -> str:
    """Return the name of an image's files: the quoted `sample_id` if it is a string, else `<split>_<number>`."""
    return file_name_of(sample_id) if isinstance(sample_id, str) else f"{split}_{sample_id:06d}"


def merge_index(folder: Path) -> list[Entry]:
    """Merge the processes' parts of the index, and write the lists of the images that are done.

    One process calls it when all have written.

    Returns:
        All entries, ordered by name.
    """
    entries = read_index(folder)
    lines = "".join(f"{to_json(asdict(entry))}\n" for entry in entries)
    write_text(folder / "index.jsonl", lines)
    with_truth = {path.stem for path in (folder / TRUTH).glob("*.png")}
    done = [entry for entry in entries if entry.status == "done"]
    for split in {entry.split for entry in entries}:
        names = [entry.name for entry in done if entry.split == split]
        _write_list(folder / LISTS / f"{split}.txt", names)
        _write_list(folder / "truth" / LISTS / f"{split}.txt", [name for name in names if name in with_truth])
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
    kinds = ((SEEDS, ".png"), (REFINED, ".png"), (MASKS, ".png"), (MAPS, ".npz"))
    stems = [{path.stem for path in (folder / kind).glob(f"*{ending}")} for kind, ending in kinds]
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


def read_maps(folder: Path, name: str) -> tuple[Float[Tensor, "classes height width"], tuple[int, ...]]:
    """Read an image's maps in 0..1, and the numbers of their classes.

    Raises:
        ValueError: If the file cannot be read.
    """
    path = folder / MAPS / f"{name}.npz"
    try:
        # Compressed zeros take a thousandth of their room: what the archive says of their size is looked at first.
        with ZipFile(io.BytesIO(read_whole(path))) as archive:
            if sum(part.file_size for part in archive.infolist()) > MOST_BYTES:
                raise ValueError(f"it holds more than {MOST_BYTES / 1e6:.0f} MB")
            maps, classes = (np.lib.format.read_array(archive.open(f"{name}.npy")) for name in ("maps", "classes"))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, MemoryError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"cannot read the maps {path}: {error}") from error
    return torch.from_numpy(maps.astype(np.float32)), tuple(classes.tolist())


def read_classes(folder: Path) -> list[str]:
    """Read the names of the classes."""
    return read_json_file(folder / "classes.json")


def describe_entries(entries: Iterable[Entry]) -> str:
    """Return a sentence: how many images are done, how many were skipped, and why."""
    entries = list(entries)
    reasons: dict[str, int] = {}
    for entry in entries:
        if entry.status == "skipped":
            reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    done = sum(entry.status == "done" for entry in entries)
    return "; ".join([f"{done} of {len(entries)} images done", *(f"{n} skipped: {why}" for why, n in reasons.items())])


def read_json_file(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(read_whole(path))


def _write_list(path: Path, names: Sequence[str]) -> None:
    if names:
        write_text(path, "".join(f"{name}\n" for name in names))


def _save_arrays(arrays: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
