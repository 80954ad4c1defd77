"""How a model's images were normalised in training: as the user, the data, the checkpoint or the model's card says.

A wrong normalisation gives a confident wrong answer, so that nothing is guessed: where nobody says it, it is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.batch import IMAGES, BatchAdapter
from lrptrain.batch.reading import read_columns
from lrptrain.cli.checkpoint import Checkpoint
from lrptrain.cli.datasets import loader_of, settings_of

Bounds = tuple[Tensor, Tensor]  # the least and the greatest number of each of 3 channels
BATCHES = 8
"""Batches of the data that are looked at."""
DARK = 0.1
"""Of many photographs some pixel is brighter than this, on the scale from black to white."""
MOST_STEPS = 64
"""Transforms that one is composed of; a longer list is looked into no further."""
ROUNDING = 1e-3
"""How far pixels may leave the range from black to white by rounding."""
BEYOND = 0.1
"""How far they may leave it by interpolation: a bicubic resizing overshoots at edges."""


@dataclass(frozen=True)
class Normalisation:
    """What is subtracted from pixels in 0..1, and what the difference is divided by.

    Attributes:
        mean: The mean of each channel.
        std: The standard deviation of each channel.
        source: Who says so, in words.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str

    def apply(self, image: Tensor) -> Tensor:
        """Return pixels `[3, height, width]` in 0..1 as the model saw them in training."""
        mean, std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (self.mean, self.std))
        return (image - mean) / std

    def __str__(self) -> str:
        """Return a line for the user."""
        if self.is_identity:
            return f"images from 0 to 1, not normalised: {self.source}"
        mean, std = (", ".join(f"{x:.4g}" for x in numbers) for numbers in (self.mean, self.std))
        return f"images normalised with mean {mean} and std {std}: {self.source}"

    @property
    def is_identity(self) -> bool:
        """Whether pixels stay in 0..1."""
        return not any(self.mean) and all(std == 1 for std in self.std)


def find_black(
    module: nn.Module, checkpoint: Checkpoint, data: Any, batch_adapter: BatchAdapter | None = None
) -> float | list[float]:
    """Return black in the units of a model's images, one number or one per channel, and print who says so.

    It is what removed pixels become. Where nobody says how images were normalised it is 0, their mean in most data
    sets, and the line says that.

    Args:
        module: The LightningModule.
        checkpoint: Its checkpoint.
        data: A datamodule or loader.
        batch_adapter: Function that brings its batches to the names of the contract.
    """
    try:
        normalisation = find_normalisation(module, checkpoint, data, batch_adapter)
    except ValueError:
        print(
            "nothing says for sure how the images were normalised (mean and std of the datamodule would): removed "
            "pixels become 0"
        )
        return 0.0
    print(f"{normalisation}; removed pixels become black")
    # A black pixel is 0 before normalisation, and (0 - mean) / std after it.
    black = [(0 - mean) / std for mean, std in zip(normalisation.mean, normalisation.std, strict=True)]
    return black[0] if len(set(black)) == 1 else black  # one number serves images of any number of channels


def find_normalisation(
    module: nn.Module, checkpoint: Checkpoint, data: Any = None, batch_adapter: BatchAdapter | None = None
) -> Normalisation:
    """Return how images were normalised in training.

    Asked in this order: what the datamodule says or saved; the transforms that it or its dataset holds, under whatever
    name; its images, which are not normalised where they lie in 0..1; the arguments of the module; the card of the
    model, which must not contradict the images.

    Args:
        module: The LightningModule.
        checkpoint: Its checkpoint, with the arguments of the module and the datamodule.
        data: A datamodule or loader; None where there is none.
        batch_adapter: Function that brings its batches to the names of the contract.

    Raises:
        ValueError: If nobody says it, or the card and the data contradict each other.
    """
    found = None if data is None else _pair_in({**_attributes(data), **settings_of(data)}, type(data).__name__)
    found = found or _pair_in(checkpoint.datamodule_settings, "the datamodule's arguments, in the checkpoint")
    bounds = None
    if found is None and data is not None:
        loader = loader_of(data, "val")
        found = _pair_of_transforms(data, loader)
        bounds = None if found is not None else _bounds(loader, batch_adapter)
        # Images in 0..1, one of which is not black throughout.
        if bounds is not None and bounds[0].min() >= 0 and DARK < bounds[1].max() <= 1 + ROUNDING:
            found = Normalisation((0.0,) * 3, (1.0,) * 3, "so are the images of the data")
    found = found or _pair_in(checkpoint.module_settings, "the module's arguments, in the checkpoint")
    return found or _by_card(module, bounds, data is not None)


def _by_card(module: nn.Module, bounds: Bounds | None, has_data: bool) -> Normalisation:
    # Who has given the data has nothing more to give by them.
    ask = f"pass --mean and --std (0 and 1 for images in 0..1){'' if has_data else ', or --data package.DataModule'}"
    if any(_numbers(getattr(part, "mean", None)) and _numbers(getattr(part, "std", None)) for part in module.modules()):
        raise ValueError(f"the module holds a mean and a std, which it may apply to its images by itself: {ask}")
    card = _model_card(module)
    if card is None:
        raise ValueError(f"nothing says how the images were normalised in training: {ask}")
    if bounds is not None and not _fits(card, bounds):
        raise ValueError(
            f"the images of the data, from {float(bounds[0].min()):.3g} to {float(bounds[1].max()):.3g}, are not "
            f"normalised as {card.source} says (mean {card.mean}, std {card.std}): pass --mean and --std"
        )
    # Images that the card may explain can have been normalised otherwise: the user has to know that it is believed.
    other = "pass --mean and --std" if bounds is not None else "pass --data, or --mean and --std"
    return replace(card, source=f"{card.source} (if training did otherwise, {other})")


def _model_card(module: nn.Module) -> Normalisation | None:
    """Return the normalisation of a timm model's `pretrained_cfg`, or of the image processor beside a model's weights.

    None where there is none, or where the parts of a model have several.
    """
    cards = []
    for part in module.modules():
        card = getattr(part, "pretrained_cfg", None)
        if isinstance(card, Mapping) and (pair := _pair_in(card, f"timm's card of {card.get('architecture', '?')}")):
            cards.append(pair)
        folder = getattr(getattr(part, "config", None), "name_or_path", "")
        if folder and (pair := _of_processor(str(folder))):
            cards.append(pair)
    return cards[0] if len({(card.mean, card.std) for card in cards}) == 1 else None


def _of_processor(folder: str) -> Normalisation | None:
    """Return what an image processor does that lies beside a model's weights, here or in the cache of the hub."""
    from lrptrain.models.pretrained import folder_here, load_pretrained

    here = folder_here(folder, "preprocessor_config.json", "processor_config.json")
    try:
        processor = load_pretrained("AutoImageProcessor", here, local_files_only=True) if here is not None else None
    except Exception:  # a folder of others may hold anything
        processor = None
    if processor is None:
        return None
    source = f"the image processor of {Path(folder).name}"
    if not getattr(processor, "do_normalize", False):
        return Normalisation((0.0,) * 3, (1.0,) * 3, source)
    return _pair_in({"mean": processor.image_mean, "std": processor.image_std}, source)


def _pair_in(settings: Mapping[str, Any], source: str) -> Normalisation | None:
    for names in (("mean", "std"), ("image_mean", "image_std")):
        mean, std = (_numbers(settings.get(name)) for name in names)
        if mean and std:
            return Normalisation(mean, std, source)
    return None


def _pair_of_transforms(data: Any, loader: Iterable[Any]) -> Normalisation | None:
    """Return the normalisation among the transforms of the data, such as torchvision's `Normalize`.

    None where there is none, or where they hold several that differ: which one images go through, nobody says.
    """
    pairs: dict[Any, Normalisation] = {}
    for owner in (*_datasets(getattr(loader, "dataset", None)), getattr(loader, "collate_fn", None), data):
        for name, value in _attributes(owner).items():
            for step in _steps(value):
                # What is called a transform is one; among other attributes, what says that it normalises.
                if name in ("transform", "transforms") or _normalises(step):
                    numbers = {key: getattr(step, key, None) for key in ("mean", "std", "image_mean", "image_std")}
                    pair = _pair_in(numbers, f"{type(step).__name__} of the {'data' if owner is data else 'dataset'}")
                    pairs |= {} if pair is None else {(pair.mean, pair.std): pair}
    return next(iter(pairs.values())) if len(pairs) == 1 else None


def _datasets(dataset: Any) -> Iterator[Any]:
    """Yield a dataset, and those that it is a part of, or made of."""
    if dataset is None:
        return
    yield dataset
    parts = getattr(dataset, "datasets", ())
    parts = parts.values() if isinstance(parts, Mapping) else parts
    for part in (getattr(dataset, "dataset", None), *(parts if isinstance(parts, Iterable) else ())):
        if part is not dataset:
            yield from _datasets(part)


def _attributes(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object, and those of its class that no library has put there."""
    values: dict[str, Any] = {}
    for kind in reversed(type(owner).__mro__):
        if kind.__module__.partition(".")[0] not in ("builtins", "torch", "pytorch_lightning", "lightning", "typing"):
            values |= {name: value for name, value in vars(kind).items() if not name.startswith("__")}
    return values | getattr(owner, "__dict__", {})


def _normalises(step: Any) -> bool:
    """Return whether a step says that it normalises: by its name, or as an image processor does."""
    return "normali" in type(step).__name__.lower() or getattr(step, "do_normalize", False) is True


def _steps(transform: Any) -> Iterator[Any]:
    """Yield a transform, or those of a list or a mapping, and those that they are composed of."""
    if transform is None or isinstance(transform, str | bytes | int | float | Tensor):
        return
    yield transform
    parts = transform if isinstance(transform, list | tuple | Mapping) else getattr(transform, "transforms", None)
    parts = list(parts.values()) if isinstance(parts, Mapping) else parts
    children = list(transform.children()) if isinstance(transform, nn.Module) else []
    # A longer list is one of samples.
    listed = list(parts) if isinstance(parts, list | tuple) and len(parts) <= MOST_STEPS else []
    for part in (*listed, *children):
        yield from _steps(part)


def _bounds(loader: Iterable[Any], batch_adapter: BatchAdapter | None) -> Bounds | None:
    """Return the least and the greatest number of each channel in the first batches; None without images."""
    lows = []
    highs = []
    for _, batch in zip(range(BATCHES), loader, strict=False):
        columns = read_columns(batch, batch_adapter)
        for images in (columns[name] for name in IMAGES if name in columns):
            scaled = images.float() if images.is_floating_point() else images / 255
            # [batch, 3, height, width]; of any other form all numbers count for all channels.
            channels = scaled.transpose(0, 1).flatten(1) if scaled.ndim == 4 and scaled.shape[1] == 3 else scaled[None]
            lows.append(channels.flatten(1).amin(1).expand(3))
            highs.append(channels.flatten(1).amax(1).expand(3))
    if not lows:
        return None
    return torch.stack(lows).amin(0), torch.stack(highs).amax(0)


def _fits(card: Normalisation, bounds: Bounds) -> bool:
    """Whether images with these bounds may be normalised as a card says: without it they lie in 0..1, or nearly so.

    Dark images and those of little contrast fit as well. Images from exactly -1 to 1 were normalised by 0.5 and 0.5.
    """
    ends = (bounds[0] + 1, bounds[1] - 1)
    if all(bool((end.abs() <= ROUNDING).all()) for end in ends):
        return {*card.mean, *card.std} == {0.5}
    low, high = (bound * torch.tensor(card.std) + torch.tensor(card.mean) for bound in bounds)
    return float(low.min()) >= -BEYOND and float(high.max()) <= 1 + BEYOND


def given_numbers(numbers: float | Sequence[float]) -> tuple[float, ...]:
    """Return the numbers that a user gives for three channels, of one or three."""
    return (float(numbers),) * 3 if isinstance(numbers, int | float) else tuple(float(x) for x in numbers)


def _numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of three channels; empty if it is something else."""
    if isinstance(value, Tensor):
        value = value.flatten().tolist()
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(x, int | float) for x in value):
        return ()
    return tuple(float(x) for x in value) * (3 if len(value) == 1 else 1) if len(value) in (1, 3) else ()
