"""Samples of different sizes: which of them can be stacked, and how a source is brought to the size of another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.call import ARGUMENT, IMAGES
from lrptrain.batch.reading import Sample

Size = tuple[tuple[str, tuple[int, ...]], ...]
MOST_CHANNELS = 4
"""A volume has a channel, or one for each of a few contrasts, as the four of BraTS; a video has more frames."""
_MODES = {3: "bilinear", 4: "trilinear"}  # by the axes of an image or a volume


def size_of(sample: Sample) -> Size:
    """Return the shapes of a sample's image and mask; texts are padded, and have none."""
    return tuple((name, tuple(sample.tensors[name].shape)) for name in (*IMAGES, "mask") if name in sample.tensors)


def by_size(samples: Sequence[Sample], most: int) -> list[list[int]]:
    """Return the indices of samples in groups of one size, in their order, of at most so many samples each."""
    if any(sample.call is not None and sample.call.bare for sample in samples):
        most = 1  # the model takes one at a time
    groups: dict[Size, list[int]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(size_of(sample), []).append(index)
    return [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]


def cannot_meet(samples: Sequence[Sample]) -> str:
    """Return the entry of rows that differs in more than their number, such as a graph's `[rows, rows]`; "" if none."""
    names = dict.fromkeys(name for sample in samples for name in sample.tensors)
    shapes = {name: {sample.tensors[name].shape[1:] for sample in samples if name in sample.tensors} for name in names}
    return next((name.removeprefix(ARGUMENT) for name, found in shapes.items() if len(found) > 1), "")


def slices_of(volume: Shaped[Tensor, "..."]) -> Shaped[Tensor, "slices channels height width"]:
    """Return the slices of a volume `[channels, slices, height, width]`, or of a video, whose frames come first."""
    return volume.movedim(1, 0) if is_volume(volume) else volume


def channels_first(image: Shaped[Tensor, "..."]) -> Shaped[Tensor, "channels ..."]:
    """Return an image or a volume as it is, and a video with its channels before its frames."""
    return slices_of(image).movedim(1, 0) if image.ndim == 4 else image


def is_series(sample: Sample) -> bool:
    """Return whether a sample may be a series, of channels and time; or it is rows."""
    return any(sample.tensors[name].ndim == 2 for name in IMAGES if name in sample.tensors)


def marks_time(batch: Mapping[str, Tensor]) -> bool:
    """Return whether a mask is one of the time of series, `[batch, channels, time]`, and none of their rows."""
    series, mask = (batch.get(name) for name in (next((each for each in IMAGES if each in batch), ""), "mask"))
    if series is None or mask is None or series.ndim != 3 or mask.ndim != 2:
        return False
    return mask.shape[1] == series.shape[2] != series.shape[1]


def is_volume(image: Shaped[Tensor, "..."]) -> bool:
    """Return whether an input is a volume: few channels come first, and more slices than these after them."""
    return image.ndim == 4 and image.shape[0] <= MOST_CHANNELS and image.shape[0] < image.shape[1]


def fitted(source: Sample, taker: Sample) -> Sample:
    """Return a source whose image, mask and boxes have the size of another sample's; itself if they have it already.

    What lies at a share of the way across one image lies at the same share across the other. Rows stay as they are.
    """
    if size_of(source) == size_of(taker):
        return source
    name = next((name for name in IMAGES if name in source.tensors), "")
    if not name or source.tensors[name].ndim < 3:
        return source
    image, like = source.tensors[name], taker.tensors[name]
    changed: dict[str, Tensor] = {}
    if image.shape != like.shape:
        mode = _MODES[image.ndim]
        size = channels_first(like).shape[1:]
        resized = F.interpolate(channels_first(image)[None], size, mode=mode, antialias=mode == "bilinear")[0]
        changed[name] = resized if image.ndim == 3 or is_volume(image) else resized.movedim(1, 0)
        if "boxes" in source.tensors:
            across, down = like.shape[-1] / image.shape[-1], like.shape[-2] / image.shape[-2]
            changed["boxes"] = source.tensors["boxes"] * source.tensors["boxes"].new_tensor([across, down] * 2)
    if "mask" in source.tensors:
        mask, other = source.tensors["mask"], taker.tensors.get("mask", channels_first(like)[0])
        places = image.ndim - 1  # two of an image, three of a volume
        planes = mask.reshape(1, -1, *mask.shape[-places:]).float()
        resized = F.interpolate(planes, other.shape[-places:], mode="nearest-exact")
        changed["mask"] = resized.view(*mask.shape[:-places], *resized.shape[2:]).to(mask.dtype)
    return replace(source, tensors={**source.tensors, **changed})
