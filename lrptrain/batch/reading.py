"""The contract with a user's batches: which entries of a dict or tuple are inputs, labels and annotations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lrptrain.batch.annotations import (
    IGNORED,
    TokenAnnotation,
    boxes_to_mask,
    mask_to_tokens,
    rationale_to_tokens,
    regions_to_tokens,
)
from lrptrain.batch.call import ARGUMENT, CALL, IMAGES, ROWS, TEXTS, Call
from lrptrain.batch.chunks import flattened
from lrptrain.batch.forms import as_mapping
from lrptrain.batch.packing import check_unpacked
from lrptrain.batch.rows import has_rows, present_rows
from lrptrain.batch.spans import token_rationale
from lrptrain.batch.task import CLASSES, LABELS, Task

ANNOTATIONS = ("mask", "boxes", "rationale")
CONTRACT = frozenset({*IMAGES, *TEXTS, *ANNOTATIONS, "label", "labels", "group", "sample_id"})
BatchAdapter = Callable[[Any], Mapping[str, Any]]
_ONE_EACH = ("label", "group")
# What fills the end of a shorter text when samples of different batches meet.
_FILL = {"rationale": IGNORED, "boxes": float("nan")}
# What has a height and a width cannot be padded: the pixels would no longer lie where they did.
_STACKED = (*IMAGES, "mask")
# Types of masks that cannot hold 255, which stands for a missing annotation; int16 keeps a wrong -1 as it is.
_TOO_NARROW = {torch.bool: torch.uint8, torch.int8: torch.int16}
# Types that torch can hardly compute with, such as those of 16-bit PNG files.
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Sample:
    """One validation sample, on the CPU.

    Attributes:
        sample_id: The id that the batch gave as `sample_id`, or else the position in the validation set.
        label: The index of the class, -1 without one.
        tensors: Inputs, annotations and the model's other arguments by the names of a batch, without the batch axis.
        group: The index of the group; None without one.
        call: What is the same in every call of the model; None where nobody heard one.
    """

    sample_id: int | str
    label: int
    tensors: dict[str, Tensor]
    group: int | None = None
    call: Call | None = None


def read_batch(
    batch: Any,
    adapter: BatchAdapter | None = None,
    task: Task = CLASSES,
    needs_input: bool = True,
    has_regions: bool = False,
) -> dict[str, Any]:
    """Bring a batch to the contract's names, and its labels to classes.

    Args:
        batch: A mapping with `image` or `pixel_values`, or `input_ids` (and `attention_mask`), `label` or `labels`, and
            optionally `mask`, `boxes`, `rationale`, `group`, `sample_id`; or a tuple (image or mapping, label[, mask]).
            See `lrptrain.batch.forms` for what else is taken, and `token_rationale` for rationales of characters.
        adapter: Called first, for batches of any other form.
        task: What the labels mean.
        needs_input: Whether the input is looked for in the batch; else it is known from the model's call.
        has_regions: Whether several masks of a sample are of named regions; else they may be those of several labels.

    Returns:
        The entries of the contract. A further tensor `[samples, ...]` is one by the name `argument:<name>`: the
        model may take it.
    """
    columns = read_columns(batch, adapter, needs_input, task.entry)
    label = columns.get("label")
    if isinstance(label, Tensor):
        mask = columns.get("mask")
        if isinstance(mask, Tensor) and not has_regions and _are_of_labels(mask, label):
            columns |= task.annotation(mask, label)
        if task.has_labels:
            columns[LABELS] = task.every(label)
        columns["label"] = task.classes(label)
    return columns


def _are_of_labels(masks: Tensor, label: Tensor) -> bool:
    """Return whether a batch has a mask for each of several labels: of images, of volumes or of series."""
    return masks.ndim > 2 and label.ndim == 2 and masks.shape[:2] == label.shape and label.shape[1] > 1


def read_columns(
    batch: Any, adapter: BatchAdapter | None = None, needs_input: bool = True, label: str = ""
) -> dict[str, Any]:
    """Bring a batch to the contract's names, with its labels as they are."""
    if adapter is not None:
        batch = adapter(batch)
    mapping = as_mapping(batch)
    check_unpacked(mapping)
    entries = {name: mapping[name] for name in (*IMAGES, *TEXTS, *ANNOTATIONS, "group", "sample_id") if name in mapping}
    if label and label not in mapping:
        raise ValueError(f"the task reads the labels {label!r}, and the batch has {list(mapping)}")
    entries |= {"label": mapping[label] if label else _label(mapping)}
    entries = {name: value for name, value in entries.items() if not _is_absent(name, value)}
    if not needs_input:
        entries = {name: x for name, x in entries.items() if name not in (*IMAGES, *TEXTS) or isinstance(x, Tensor)}
    shapes = [getattr(entries.get(name), "shape", None) for name in ("rationale", "input_ids")]
    if "rationale" in entries and "input_ids" in entries and (shapes[0] is None or shapes[0] != shapes[1]):
        entries["rationale"] = token_rationale(entries["rationale"], mapping)
    rows = _rows_of_one_bag(entries, mapping)
    if rows is not None and getattr(entries["label"], "ndim", 0) == 0:
        entries["label"] = torch.as_tensor(entries["label"]).reshape(1)
    columns = {name: _column(name, value) for name, value in entries.items() if value is not None}
    mask = columns.get("mask")
    if isinstance(mask, Tensor) and _has_channels_last(mask, columns):
        columns["mask"] = mask[..., 0]
    if needs_input and not any(name in columns for name in (*IMAGES, "input_ids")):
        possible = [
            name for name, x in mapping.items() if isinstance(x, Tensor) and x.ndim > 1 and name not in CONTRACT
        ]
        such = f", such as explain={possible[0]!r}" if possible else ""
        raise ValueError(
            f"no input in a batch with {list(mapping)}: it needs 'image' or 'pixel_values', or 'input_ids'; pass "
            f"batch_adapter=... to rename its entries, or to monitors and guidance explain= with the name of one{such}"
        )
    columns = {name: x[None] if isinstance(x, Tensor) and _has_rows(x, rows) else x for name, x in columns.items()}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the entries of a batch differ in length: {sizes}")
    columns |= _arguments(mapping, next(iter(sizes.values()), None), rows)
    # What is explained is one input: texts beside images are arguments.
    is_image = any(name in columns for name in IMAGES)
    if needs_input and not is_image:
        columns = flattened(columns)
    return {f"{ARGUMENT}{name}" if is_image and name in TEXTS else name: x for name, x in columns.items()}


def _rows_of_one_bag(entries: Mapping[str, Any], mapping: Mapping[str, Any]) -> int | None:
    """Return how many rows a batch has that is one bag `[rows, numbers]` with one label; None of any other batch."""
    label = entries.get("label")
    if not (isinstance(label, int | float) or (isinstance(label, Tensor) and label.numel() == 1)):
        return None
    inputs = [name for name in (*IMAGES, "input_ids") if name in entries]
    tensors = [x for name in inputs or mapping if isinstance(x := mapping[name], Tensor)]
    bags = [len(x) for x in tensors if x.ndim == 2 and x.is_floating_point() and len(x) > 1]
    return bags[0] if len(inputs) < 2 and bags else None


def _has_rows(value: Tensor, rows: int | None) -> bool:
    return rows is not None and value.ndim > 0 and len(value) == rows


def of_one_row(columns: dict[str, Any]) -> dict[str, Any]:
    """Return one bag of one row `[1, numbers]` as a batch of one; any other batch as it is."""
    bag = next((columns[name] for name in IMAGES if name in columns), None)
    if not isinstance(bag, Tensor) or bag.ndim != 2 or len(bag) != 1:
        return columns
    of_rows = {name for name in columns if name in (*IMAGES, "rationale") or name.startswith(ARGUMENT)}
    return {name: x[None] if name in of_rows and isinstance(x, Tensor) else x for name, x in columns.items()}


def _arguments(mapping: Mapping[str, Any], length: int | None, rows: int | None) -> dict[str, Tensor]:
    """Return the entries that the contract does not name, as far as they are tensors with a row per sample."""
    tensors = {name: x for name, x in mapping.items() if name not in CONTRACT and isinstance(x, Tensor) and x.ndim}
    tensors = {name: x[None] if _has_rows(x, rows) else x for name, x in tensors.items()}
    return {f"{ARGUMENT}{name}": x.as_subclass(Tensor) for name, x in tensors.items() if len(x) == length}


def _has_channels_last(mask: Tensor, columns: Mapping[str, Any]) -> bool:
    """Return whether masks are `[batch, height, width, 1]`, as array libraries hold them."""
    image = next((columns[name] for name in IMAGES if name in columns), None)
    if image is None or image.ndim != 4:
        return False
    return bool(mask.ndim == 4 and mask.shape[-1] == 1 and image.shape[-1] > 1)


def _label(entries: Mapping[str, Any]) -> Any:
    """Return `label`, or else `labels`: also where `label` holds the names of classes beside their indices."""
    label = entries.get("label")
    if "labels" not in entries or isinstance(label, Tensor):
        return label
    try:
        torch.as_tensor(label)
    except (TypeError, ValueError, RuntimeError):
        return entries["labels"]
    return label


def _is_absent(name: str, value: Any) -> bool:
    """Return whether an entry is None, or an annotation that is None for every sample of this batch."""
    listed = name in ANNOTATIONS and isinstance(value, list | tuple) and len(value) > 0
    return value is None or (listed and all(sample is None for sample in value))


def _column(name: str, value: Any) -> Tensor | list[int | str]:
    """Return an entry as a plain tensor that can be padded; ids, which may be strings, as a list."""
    if name == "sample_id":
        return _ids(value)
    try:
        if name == "boxes" and isinstance(value, list | tuple) and value:
            value = _padded(value)
        column = torch.as_tensor(value).as_subclass(Tensor)  # torchvision's tv_tensors cannot be padded
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name!r} of a batch must be a tensor, or numbers that make one, not {_described(value)} ({error}); "
            "stack it in the dataloader's collate_fn, or pass batch_adapter=..."
        ) from None
    if name in _ONE_EACH and column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim == 0 or (name == "group" and (column.ndim > 1 or column.is_floating_point())):
        expected = {"label": "one number", "group": "one integer"}.get(name, "one entry")
        without = " or leaves it out: predicted classes are explained without it" if name == "label" else ""
        raise ValueError(
            f"{name!r} of a batch must hold {expected} per sample, not {column.dtype} of shape {list(column.shape)}; "
            f"pass batch_adapter=... that brings it to that form{without}"
        )
    # A mask of a value per row may be an argument of the model, which has its type.
    if name in ("mask", "rationale") and column.dtype in _TOO_NARROW and (name, column.ndim) != ("mask", 2):
        return column.to(_TOO_NARROW[column.dtype])
    if column.dtype in _WIDE_UNSIGNED and name not in IMAGES:
        column = column.long()
    # Images of bytes have no gradient, and a box has corners between pixels.
    return column.float() if name in ("boxes", *IMAGES) and not column.is_floating_point() else column


def _padded(boxes: Sequence[Any]) -> Tensor:
    """Return the boxes of images, of which each has as many as it has, or None, padded with boxes of NaN."""
    rows = [torch.as_tensor([] if each is None else each).as_subclass(Tensor).float() for each in boxes]
    rows = [each if each.numel() else each.reshape(0, 4) for each in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=float("nan"))


def _ids(value: Any) -> list[int | str]:
    """Return ids as integers and as strings that can be written in UTF-8."""
    ids = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise ValueError(f"'sample_id' of a batch must hold one number or string per sample, not {_described(value)}")
    return [_id(each.item() if getattr(each, "ndim", None) == 0 else each) for each in ids]


def _id(value: Any) -> int | str:
    if isinstance(value, int | float) and value == value // 1 and abs(value) < 2**63:  # what a table's column holds
        return int(value)
    # File names that are no UTF-8 come as strings with lone surrogates, which no file takes: each is written out.
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _described(value: Any) -> str:
    """Return in a few words what a value is, such as `list of str` or `dict`."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value):
        kinds = sorted({type(each).__name__ for each in value})
        return f"{type(value).__name__} of {' and '.join(kinds)}"
    return type(value).__name__


def take(batch: Mapping[str, Any], row: int, index: int | str) -> Sample:
    """Copy one sample of a batch to the CPU.

    Returns:
        The sample. Its label is -1 where the batch has none or a negative one.
    """
    # Lightning validates in inference mode, and a tensor made there could never have a gradient.
    with torch.inference_mode(False):
        rows = {name: x[row].detach().cpu().clone() for name, x in batch.items() if isinstance(x, Tensor)}
    group = rows.pop("group", None)
    label = rows.pop("label", None)
    return Sample(
        sample_id=batch["sample_id"][row] if "sample_id" in batch else index,
        label=-1 if label is None else max(int(label), -1),
        tensors=rows,
        group=None if group is None else int(group),
        call=batch.get(CALL),
    )


def collate(samples: Sequence[Sample], device: torch.device | str = "cpu") -> dict[str, Any]:
    """Stack samples; texts, rows and lists of boxes are padded to the longest; a missing annotation is all ignored."""
    names = list(dict.fromkeys(name for sample in samples for name in sample.tensors))
    stacked: dict[str, Any] = {}
    for name in names:
        present = [sample.tensors[name] for sample in samples if name in sample.tensors]
        if len(present) < len(samples) and name not in ANNOTATIONS:
            raise ValueError(f"{name.removeprefix(ARGUMENT)!r} is in some batches and not in others: give it in all")
        fill = _FILL.get(name, IGNORED if name == "mask" else 0)
        # A batch with annotations may meet one without: the latter's samples have annotations that are all ignored.
        # A type that holds the values of all. The float of the first sample is the one that the model takes; float64
        # beside it must not become that of all.
        floats = [row.dtype for row in present if row.is_floating_point()]
        dtype = floats[0] if floats else reduce(torch.promote_types, (row.dtype for row in present))
        if len(present) < len(samples):
            filled = torch.full_like(present[0], fill, dtype=dtype)
            present = [sample.tensors.get(name, filled) for sample in samples]
        rows = [row.to(dtype) for row in present]
        shapes = {row.shape for row in rows}
        if len(shapes) == 1:
            stacked[name] = torch.stack(rows).to(device)
            continue
        are_rows = name in IMAGES and {row.ndim for row in rows} == {2} and len({row.shape[1] for row in rows}) == 1
        if name in _STACKED and not are_rows:
            sizes = sorted(map(tuple, shapes))
            raise ValueError(f"{name!r} has other sizes in other samples, {sizes}: bring all of them to one size")
        stacked[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill).to(device)
        if are_rows:
            lengths = torch.tensor([len(row) for row in rows])[:, None]
            stacked[ROWS] = (torch.arange(stacked[name].shape[1]) < lengths).to(device)
    if samples[0].call is not None:
        stacked[CALL] = samples[0].call
    unmasked = "input_ids" in stacked and "attention_mask" not in stacked
    if unmasked and len({len(sample.tensors["input_ids"]) for sample in samples}) > 1:
        raise ValueError("texts of different lengths need an attention_mask in the batch")
    return stacked


def batched(samples: Sequence[Sample], batch_size: int, device: torch.device | str = "cpu") -> list[dict[str, Any]]:
    """Return batches of the samples in their order, with `label` (-1 where there is none)."""
    chunks = [samples[start : start + batch_size] for start in range(0, len(samples), batch_size)]
    labels = [torch.tensor([sample.label for sample in chunk], device=device) for chunk in chunks]
    return [{**collate(chunk, device), "label": label} for chunk, label in zip(chunks, labels, strict=True)]


def token_annotations(
    batch: Mapping[str, Tensor], grid: tuple[int, ...] | None, region_names: Sequence[str] = ()
) -> tuple[TokenAnnotation | None, dict[str, TokenAnnotation]]:
    """Return the evidence of a batch at the model's tokens, None without an annotation, and its named regions."""
    if grid is None:
        if "rationale" not in batch:
            return None, {}
        there = present_rows(batch) if has_rows(batch) else batch.get("attention_mask")
        return rationale_to_tokens(batch["rationale"], there), {}
    if len(grid) == 1 and "rationale" in batch:  # of series with their time first
        return mask_to_tokens(batch["rationale"], grid), {}
    has_regions = "mask" in batch and batch["mask"].ndim == len(grid) + 2
    if has_regions and batch["mask"].shape[1] == 1 and not region_names:
        # A mask read like an image has a channel axis, [batch, 1, height, width], and no names of regions.
        return mask_to_tokens(batch["mask"][:, 0], grid), {}
    if has_regions:
        regions = regions_to_tokens(batch["mask"], region_names, grid)
        return next(iter(regions.values())), regions
    if "mask" in batch:
        return mask_to_tokens(batch["mask"], grid), {}
    if "boxes" in batch:
        image = next(batch[name] for name in IMAGES if name in batch)
        return mask_to_tokens(boxes_to_mask(batch["boxes"], (image.shape[-2], image.shape[-1])), grid), {}
    return None, {}
