"""The forms in which batches come: mappings, tuples, dataclasses and what is nested, as one flat mapping."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

INPUTS = ("image", "pixel_values", "input_ids")
_READ = (*INPUTS, "label", "labels", "mask", "boxes", "rationale", "group", "sample_id")
# Names that mean the same.
_SAME = (frozenset({"label", "labels"}), frozenset({"image", "pixel_values"}))
ADAPTER_HINT = "batch_adapter=... brings any other form to the names 'image' or 'input_ids', 'label', 'mask' ..."


def as_mapping(batch: Any) -> dict[str, Any]:
    """Return the entries of a batch by name.

    Args:
        batch: A mapping, a dataclass or a named tuple with the contract's names, at its top or in mappings inside it;
            or a tuple or list (image or mapping, label[, mask or rationale[, ...]]).

    Returns:
        The entries. Of a plain tuple, what comes third is the mask where it has the axes of one, or the rationale where
        it has the shape of the token ids; a mapping there is read by name. An index, metadata, a second view of the
        images and all else that is no annotation are left out.
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
    """Return the entries with those of nested mappings; an entry further up goes before those inside."""
    top = {str(name): value for name, value in fields.items() if _fields(value) is None}
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        inner = _fields(value)
        if inner is None:
            continue
        nested = _unnamed(_flat(inner), top)
        twice = sorted(flat.keys() & nested.keys())
        # Only where it matters: a name that the contract does not know may well occur twice.
        if any(each in _READ for each in twice if each not in ("group", "sample_id")):
            raise ValueError(f"a batch holds {twice} twice, the second time in {str(name)!r}; {ADAPTER_HINT}")
        flat = nested | flat
    return top | flat


def _unnamed(entries: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that others do not give already, by the same name or by one that means the same."""
    used_names = set(given).union(*(names for names in _SAME if names & given.keys()))
    return {name: value for name, value in entries.items() if name not in used_names}


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
        named = _fields(other)
        if named is not None:
            entries |= _unnamed(_flat(named), entries)
            continue
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
    # Instances of bags, `[batch, rows, numbers]`, have labels; of series, `[batch, channels, time]`, the time has.
    image, label = entries.get("image"), entries.get("label")
    if isinstance(image, Tensor) and image.ndim == 2 and getattr(label, "numel", int)() < 2:  # one bag
        is_of_rows = isinstance(value, Tensor) and value.shape == image.shape[:1]
        return "rationale" if is_of_rows and _has_values_of_masks(value) else None
    if isinstance(image, Tensor) and image.ndim == 3 and isinstance(value, Tensor) and value.ndim == 2:
        names = {tuple(image[:, 0].shape): "mask", tuple(image.shape[:2]): "rationale"}
        return names.get(tuple(value.shape)) if _has_values_of_masks(value) else None
    # [batch], [batch, k] are an index, a domain, or metadata as in WILDS; a mask has a height and a width.
    return "mask" if axes in (3, 4) and not _is_view(entries, value) else None


def _is_view(entries: Mapping[str, Any], value: Any) -> bool:
    """Return whether the third part of a tuple is another image of each sample: of its channels, type and values."""
    image = next((entries[name] for name in ("image", "pixel_values") if name in entries), None)
    if not (isinstance(image, Tensor) and isinstance(value, Tensor)) or value.ndim != 4 or image.ndim != 4:
        return False
    alike = value.dtype == image.dtype and value.shape[1] == image.shape[1] > 1
    return alike and not _has_values_of_masks(value)


def ignored_parts(batch: Any) -> str:
    """Return what of a tuple is not read, such as `its part 3 (int64 [8])`; "" if all is."""
    if _fields(batch) is not None or not isinstance(batch, Sequence):
        return ""
    entries = as_mapping(batch)
    unread = [
        f"its part {place} ({_kind(part)})"
        for place, part in enumerate(batch[2:], start=3)
        if not any(value is entry for value in _values(part) for entry in entries.values())
    ]
    return ", ".join(unread)


def overlooked_entries(batch: Any, label: str = "") -> list[tuple[str, str, str]]:
    """Return which entries of other names look like the label or the mask that a batch of images has not.

    Whoever calls the masks `segmentation` would else be told that nothing was annotated, and not why.

    Returns:
        Such as `("segmentation", "uint8 [8, 32, 32]", "mask")`. A label is one number per sample, of integers; a mask
        has a height and a width and no other values than masks have.
    """
    entries = as_mapping(batch)
    named = [entries[name] for name in ("image", "pixel_values") if name in entries]
    # Of another name, images are what the model is given: the labels beside them are told all the same.
    heard = [x for x in entries.values() if isinstance(x, Tensor) and x.ndim == 4 and x.is_floating_point()]
    image = next(iter(named or heard), None)
    if not isinstance(image, Tensor) or image.ndim != 4:
        return []
    missing = [("label", _is_like_label)] if not entries.keys() & {"label", "labels", label} else []
    missing += [("mask", _is_like_mask)] if not entries.keys() & {"mask", "boxes"} else []
    others = {
        name: value
        for name, value in entries.items()
        if name not in _READ and isinstance(value, Tensor) and value is not image
    }
    return [
        (other, _kind(value), name)
        for name, is_like in missing
        for other, value in others.items()
        if len(value.shape) > 0 and len(value) == len(image) and is_like(value)
    ]


def _is_like_label(value: Tensor) -> bool:
    """Return whether an entry is an integer per sample."""
    is_integer = not value.is_floating_point() and not value.is_complex()
    return is_integer and (value.ndim == 1 or (value.ndim == 2 and value.shape[1] == 1))


def _is_like_mask(value: Tensor) -> bool:
    """Return whether an entry has a height and a width, and the values of masks."""
    return value.ndim in (3, 4) and min(value.shape[-2:]) > 1 and _has_values_of_masks(value)


def _has_values_of_masks(value: Tensor) -> bool:
    return bool(((value == 0) | (value == 1) | (value == 255)).all())


def _values(part: Any) -> list[Any]:
    """Return what a mapping holds by names of the contract, or else the part alone."""
    fields = _fields(part)
    return [part] if fields is None else [value for name, value in _flat(fields).items() if name in _READ]


def _kind(part: Any) -> str:
    if hasattr(part, "dtype") and hasattr(part, "shape"):
        return f"{str(part.dtype).removeprefix('torch.')} {list(part.shape)}"
    return type(part).__name__
