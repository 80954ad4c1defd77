"""Scored samples as pictures and highlighted texts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.annotations import boxes_to_mask
from lrptrain.intervention.regions import content_tokens
from lrptrain.loggers.record import Highlight, Input, Picture
from lrptrain.monitor.evaluate import Scored
from lrptrain.monitor.summary import FOCUS, class_name
from lrptrain.render import enlarge, overlay, to_pixels, token_html, token_markdown


@dataclass(frozen=True)
class Look:
    """How samples are shown.

    Attributes:
        class_names: Name of each class.
        tokens: Token ids to token strings.
        mean: Per channel, as images were normalised with; without it they are stretched from minimum to maximum.
        std: Per channel.
    """

    class_names: Sequence[str]
    tokens: Callable[[list[int]], list[str]]
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


def shown_first(scored: Sequence[Scored], most: int) -> list[Scored]:
    """The same few samples in every epoch, classes in turn."""
    by_class: dict[int, list[Scored]] = {}
    for one in scored:
        by_class.setdefault(one.sample.label, []).append(one)
    longest = max(map(len, by_class.values()), default=0)
    turns = [members[i] for i in range(longest) for _, members in sorted(by_class.items()) if i < len(members)]
    return turns[:most]


def pictures(scored: Sequence[Scored], look: Look) -> list[Picture]:
    """Overlays of the relevance for the first target, the label where there is one."""
    return [_picture(one, look) for one in scored if one.grid is not None]


def _picture(one: Scored, look: Look) -> Picture:
    image = _image(one.sample)
    grid = one.grid
    assert grid is not None
    heat = next(iter(one.maps.values())).unflatten(0, grid)
    outline = _outline(one.sample.tensors, (image.shape[-2], image.shape[-1]))
    return Picture(
        sample_id=one.sample.sample_id,
        caption=caption(one, look.class_names),
        image=overlay(image, heat, outline, mean=look.mean, std=look.std),
        mask=None if outline is None else enlarge(outline),
    )


def _image(sample: Sample) -> Tensor:
    return next(sample.tensors[name] for name in IMAGES if name in sample.tensors).float()


def _outline(tensors: Mapping[str, Tensor], size: tuple[int, int]) -> UInt8[np.ndarray, "height width"] | None:
    """The evidence at the image's size; None where its mask has another."""
    if "mask" in tensors:
        mask = tensors["mask"]
        mask = mask[0] if mask.ndim == 3 else mask
        return mask.float().numpy().astype(np.uint8) if tuple(mask.shape) == size else None
    return boxes_to_mask(tensors["boxes"][None], size)[0].numpy() if "boxes" in tensors else None


def highlights(scored: Sequence[Scored], look: Look) -> list[Highlight]:
    """Texts with the relevance for the first target."""
    return [_highlight(one, look) for one in scored if "input_ids" in one.sample.tensors]


def _highlight(one: Scored, look: Look) -> Highlight:
    tensors, real = one.sample.tensors, _real(one.sample)
    tokens = look.tokens(tensors["input_ids"][real].tolist())
    scores = next(iter(one.maps.values()))[real].numpy()
    rationale = tensors["rationale"][real].numpy() if "rationale" in tensors else None
    scored = _scored_tokens(one.sample)[real].numpy()
    return Highlight(
        sample_id=one.sample.sample_id,
        caption=caption(one, look.class_names),
        html=token_html(tokens, scores, rationale, scored=scored),
        text=token_markdown(tokens, scores, rationale, scored),
    )


def inputs(
    samples: Iterable[tuple[Sample, tuple[int, int] | None]], look: Look
) -> dict[int | str, Callable[[], Input]]:
    """What the samples are, by id, each made when it is asked for.

    Args:
        samples: With inputs and annotations, and the grid of their patches, None for texts.
        look: How they are shown.
    """
    return {sample.sample_id: partial(_input, sample, grid, look) for sample, grid in samples}


def _input(sample: Sample, grid: tuple[int, int] | None, look: Look) -> Input:
    if grid is not None:
        image = _image(sample)
        annotation = _outline(sample.tensors, (image.shape[-2], image.shape[-1]))
        return Input(sample.sample_id, grid, to_pixels(image, mean=look.mean, std=look.std), annotation=annotation)
    real = _real(sample)
    names = iter(look.tokens(sample.tensors["input_ids"][real].tolist()))
    rationale = sample.tensors.get("rationale")
    return Input(
        sample_id=sample.sample_id,
        tokens=[next(names) if here else None for here in real.tolist()],
        annotation=None if rationale is None else rationale.numpy().astype(np.uint8),
        scored=_scored_tokens(sample).tolist(),
    )


def _scored_tokens(sample: Sample) -> Tensor:
    """Which tokens of a text are content that is scored: neither special nor padding nor ignored; bool `[tokens]`."""
    return content_tokens({name: value[None] for name, value in sample.tensors.items()})[0]


def _real(sample: Sample) -> Tensor:
    """Which tokens of a text are not padding."""
    ids = sample.tensors["input_ids"]
    return sample.tensors["attention_mask"].bool() if "attention_mask" in sample.tensors else ids >= 0


def caption(one: Scored, class_names: Sequence[str]) -> str:
    """One line: id, label, prediction, and the share of relevance on the annotation."""
    said = f"{class_name(one.predicted, class_names)} ({one.probability:.0%})"
    parts = [f"#{one.sample.sample_id}", f"{class_name(one.sample.label, class_names)} read as {said}"]
    share = next((value for name, value in one.values.items() if name.endswith(FOCUS)), float("nan"))
    if not np.isnan(share):
        parts.append(f"{share:.0%} on the annotation ({one.chance:.0%} of the area)")
    return ", ".join(parts)
