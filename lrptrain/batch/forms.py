"""The forms in which batches come: mappings, tuples, dataclasses and what is nested, as one flat mapping."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

INPUTS = ("image", "pixel_values", "input_ids")
ADAPTER_HINT = "batch_adapter=... brings any other form to the names 'image' or 'input_ids', 'label', 'mask' ..."


def as_mapping(batch: Any) -> dict[str, Any]:
    """Return the entries of a batch by name.

    Args:
        batch: A mapping, a dataclass or a named tuple with the contract's names, at its top or in mappings inside it;
            or a tuple or list (image or mapping, label[, mask or rationale[, ...]]).

    Returns:
        The entries. Of a plain tuple, what comes third is the mask where it has the axes of one, or the rationale where
        it has the shape of the token ids. An index, metadata and all else that is no annotation are left out.

    Raises:
        ValueError: If the batch has another form, or a name occurs twice.
    """
    fields = _fields(batch)
    if fields is not None:
        return _flat(fields)
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return _from_tuple(batch)
    raise ValueError(f"a batch must be a mapping or a tuple, not {type(batch).__name__}; {ADAPTER_HINT}")


def _fields(value: Any) -> dict[str, Any] | None:
    """Return what a mapping, a dataclass or a named tuple holds by name; None for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    # A named tuple of other names, such as (data, target), is read by its order.
    names = getattr(value, "_fields", ())
    if isinstance(value, tuple) and any(name in names for name in INPUTS):
        return dict(zip(names, value, strict=True))
    return None


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries with those of nested mappings, such as {"inputs": {"image": ...}, "targets": {...}}."""
    flat = {str(name): value for name, value in fields.items() if _fields(value) is None}
    for name, value in fields.items():
        inner = _fields(value)
        if inner is None:
            continue
        nested = _flat(inner)
        twice = sorted(flat.keys() & nested.keys())
        # Only where it matters: a name that the contract does not know may well occur twice.
        if any(each in (*INPUTS, "label", "labels", "mask", "boxes", "rationale") for each in twice):
            raise ValueError(f"a batch holds {twice} twice, the second time in {str(name)!r}; {ADAPTER_HINT}")
        flat = nested | flat
    return flat


def _from_tuple(batch: Sequence[Any]) -> dict[str, Any]:
    """Return (image or mapping, label, annotation) by the names of the contract."""
    if not len(batch):
        raise ValueError(f"a batch is an empty {type(batch).__name__}; {ADAPTER_HINT}")
    first, *rest = batch
    inner = _fields(first)
    others = _fields(rest[0]) if rest else None
    # Samples have the same entries, inputs and targets have others.
    if inner is not None and others is not None and inner.keys() & others.keys() & {*INPUTS, "label", "labels"}:
        raise ValueError(
            f"a batch is a list of {len(batch)} samples that nobody stacked: give the dataloader a collate_fn that "
            f"does, or stack them in a batch_adapter; {ADAPTER_HINT}"
        )
    entries = _flat(inner) if inner is not None else {"image": first}
    if rest:
        if others is not None:
            entries = _flat(others) | entries
        elif isinstance(rest[0], Sequence) and any(getattr(each, "ndim", 0) for each in rest[0]):
            raise ValueError(f"what comes second in a batch is a {type(rest[0]).__name__}, no labels; {ADAPTER_HINT}")
        else:
            entries["label"] = rest[0]
    for other in rest[1:2]:
        name = _annotation_name(entries, other)
        if name is not None:
            entries.setdefault(name, other)
    return entries


def _annotation_name(entries: Mapping[str, Any], value: Any) -> str | None:
    """Return which annotation the third part of a tuple can be by its axes, or None."""
    axes = getattr(value, "ndim", 0)
    if "input_ids" in entries:
        same = tuple(getattr(value, "shape", ())) == tuple(getattr(entries["input_ids"], "shape", ()))
        return "rationale" if same else None
    # [batch], [batch, k] are an index, a domain, or metadata as in WILDS; a mask has a height and a width.
    return "mask" if axes in (3, 4) else None


def ignored_parts(batch: Any) -> str:
    """Return what of a tuple is not read, such as `its part 3 (int64 [8])`; "" if all is.

    Args:
        batch: A batch as `as_mapping` takes it.
    """
    if _fields(batch) is not None or not isinstance(batch, Sequence):
        return ""
    entries = as_mapping(batch)
    unread = [
        f"its part {place} ({_kind(part)})"
        for place, part in enumerate(batch[2:], start=3)
        if not any(part is entry for entry in entries.values())
    ]
    return ", ".join(unread)


def _kind(part: Any) -> str:
    if hasattr(part, "dtype") and hasattr(part, "shape"):
        return f"{str(part.dtype).removeprefix('torch.')} {list(part.shape)}"
    return type(part).__name__
