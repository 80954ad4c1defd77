"""Explained samples as pictures and highlighted texts, and the samples themselves for the record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.annotations import boxes_to_mask
from lrptrain.batch.content import content_tokens
from lrptrain.batch.rows import present_rows
from lrptrain.batch.sizes import slices_of
from lrptrain.loggers.record import Highlight, Input, Picture
from lrptrain.monitor.evaluation import ExplainedSample, class_name
from lrptrain.monitor.summary import FOCUS
from lrptrain.render import scored_tokens, titled_pair, to_pixels, token_html, token_markdown


@dataclass(frozen=True)
class DisplayOptions:
    """How samples are drawn; without a mean, images are stretched from their minimum to their maximum."""

    class_names: Sequence[str]
    name_tokens: Callable[[list[int]], list[str]]
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    channels: Sequence[int] | None = None

    def drawn(self, image: Float[Tensor, "channels height width"]) -> Float[Tensor, "drawn height width"]:
        """Return the channels of an image that are drawn; all of one that has not so many."""
        has_them = self.channels is not None and image.ndim == 3 and len(image) > max(self.channels)
        return image[[*self.channels]] if has_them and self.channels is not None else image


def choose_displayed(explained: Sequence[ExplainedSample], count: int) -> list[ExplainedSample]:
    """Return the same `count` samples in every epoch, one of each class in turn."""
    return [explained[i] for i in choose_in_turn([each.sample.label for each in explained], count)]


def choose_in_turn(labels: Sequence[int], count: int) -> list[int]:
    """Return the indices of `count` samples, one of each class in turn."""
    by_class: dict[int, list[int]] = {}
    for i, label in enumerate(labels):
        by_class.setdefault(label, []).append(i)
    # e.g. classes of 3, 1 and 2 samples, a, b and c: a1 b1 c1 a2 c2 a3, of which the first `count`.
    rounds = max(map(len, by_class.values()), default=0)
    in_turn = [members[i] for i in range(rounds) for _, members in sorted(by_class.items()) if i < len(members)]
    return in_turn[:count]


def pictures(explained: Sequence[ExplainedSample], options: DisplayOptions) -> list[Picture]:
    """Draw images, each beside its relevance for the first target, the label where there is one."""
    return [_picture(each, each.grid, options) for each in explained if each.grid is not None]


def _picture(explained: ExplainedSample, grid: tuple[int, ...], options: DisplayOptions) -> Picture:
    target, heat = next(iter(explained.maps.items()))
    heat = heat.unflatten(0, grid)  # [rows, columns], of a volume [slices, rows, columns]
    sample, title = explained.sample, _title(explained, target, options.class_names)
    if len(grid) == 3:
        number = int(heat.clamp(min=0).nan_to_num(0.0).sum((1, 2)).argmax())
        (place,) = shown = _middles(sample, grid)[number : number + 1]
        sample, heat, title = _of_slices(sample, shown), heat[number], f"{title}, slice {place}"
    image = _image(sample, options)
    outline = _annotation(sample.tensors, (image.shape[-2], image.shape[-1]))
    pair = titled_pair(image, heat, outline, title=title, mean=options.mean, std=options.std)
    return Picture(
        sample_id=explained.sample.sample_id,
        caption=caption(explained, options.class_names),
        image=pair.picture,
        mask=None if outline is None else pair.laid(outline),
    )


def _middles(sample: Sample, grid: tuple[int, ...]) -> list[int]:
    """Return the slice in the middle of each cell of a volume's map."""
    count = len(slices_of(_raw(sample)))
    return [(2 * cell + 1) * count // (2 * grid[0]) for cell in range(grid[0])]


def _of_slices(sample: Sample, places: Sequence[int]) -> Sample:
    """Return a volume as an image: some of its slices, one below the other, with their annotation."""
    tensors = {"image": torch.cat([slices_of(_raw(sample))[place] for place in places], 1)}
    mask = sample.tensors.get("mask")
    if mask is not None:
        mask = mask[0] if mask.ndim == 4 else mask
        tensors["mask"] = torch.cat([mask[place] for place in places], 0)
    return replace(sample, tensors=tensors)


def _raw(sample: Sample) -> Tensor:
    return next(sample.tensors[name] for name in IMAGES if name in sample.tensors)


def _title(explained: ExplainedSample, target: str, class_names: Sequence[str]) -> str:
    """Return which class is explained, and its probability."""
    if explained.labels is not None:
        return f"answers {explained.answer_in(class_names)!r}, p = {explained.probability:.2f}"
    explained_class = explained.sample.label if target == "label" else explained.predicted
    probability = explained.probabilities[explained_class]
    return f"target {class_name(explained_class, class_names)!r}, p = {probability:.2f}"


def _image(sample: Sample, options: DisplayOptions) -> Float[Tensor, "channels height width"]:
    """Return the channels of a sample's image that are drawn."""
    image = options.drawn(_raw(sample))
    if not can_be_drawn(image):
        raise ValueError(
            f"an image has the shape [3, height, width] or [1, height, width] to be drawn, not {tuple(image.shape)}: "
            "show=lrptrain.Show(max_pictures=0) continues without pictures, with the same maps and tests, and of "
            "images with more channels Show(channels=(3, 2, 1)) draws three"
        )
    return image.float()


def can_be_drawn(image: Shaped[Tensor, "..."]) -> bool:
    """Return whether an image is in grey or in colours, and not of 2 or 13 channels."""
    return image.ndim == 3 and len(image) in (1, 3)


def _annotation(tensors: Mapping[str, Tensor], size: tuple[int, int]) -> UInt8[np.ndarray, "height width"] | None:
    """Return the annotation at the image's size, of the first region where there are several; None at another size."""
    if "mask" in tensors:
        mask = tensors["mask"]
        mask = mask[0] if mask.ndim == 3 else mask
        return mask.float().numpy().astype(np.uint8) if tuple(mask.shape) == size else None
    return boxes_to_mask(tensors["boxes"][None], size)[0].numpy() if "boxes" in tensors else None


def highlights(explained: Sequence[ExplainedSample], options: DisplayOptions) -> list[Highlight]:
    """Highlight texts, or the numbers of rows, by their relevance for the first target."""
    return [_highlight(each, options) for each in explained if each.are_rows or "input_ids" in each.sample.tensors]


def _highlight(explained: ExplainedSample, options: DisplayOptions) -> Highlight:
    tensors = explained.sample.tensors
    # Padding has neither a name nor relevance.
    attended = _attended(explained.sample)
    tokens = _names(explained.sample, attended, options)
    scores = next(iter(explained.maps.values()))[attended].numpy()
    rationale = tensors["rationale"][attended].numpy() if "rationale" in tensors else None
    scored = _content(explained.sample)[attended].numpy() & scored_tokens(tokens)
    return Highlight(
        sample_id=explained.sample.sample_id,
        caption=caption(explained, options.class_names),
        html=token_html(tokens, scores, rationale, scored=scored),
        text=token_markdown(tokens, scores, rationale, scored),
    )


def inputs(
    samples: Iterable[tuple[Sample, tuple[int, ...] | None]], options: DisplayOptions, are_rows: bool = False
) -> dict[int | str, Callable[[], Input]]:
    """Return what the samples are, by id, as functions: only what is not in the record yet is made.

    Each sample comes with the grid of its patches, None for a text. What is neither an image nor a text nor rows, such
    as a waveform, cannot be shown, and is left out.
    """
    drawable = [(sample, grid) for sample, grid in samples if grid is not None or are_rows or _is_text(sample)]
    return {sample.sample_id: partial(_input, sample, grid, options) for sample, grid in drawable}


def _input(sample: Sample, grid: tuple[int, ...] | None, options: DisplayOptions) -> Input:
    if grid is not None:
        identity = sample.sample_id
        if len(grid) == 3:  # slices one below the other are an image, and so are their maps
            sample, grid = _of_slices(sample, _middles(sample, grid)), (grid[0] * grid[1], grid[2])
        image = _image(sample, options)
        annotation = _annotation(sample.tensors, (image.shape[-2], image.shape[-1]))
        pixels = to_pixels(image, mean=options.mean, std=options.std)
        return Input(identity, (grid[0], grid[1]), pixels, annotation=annotation)
    attended = _attended(sample)
    # Only attended tokens have names; None for the others keeps places the same as in the maps.
    names = iter(_names(sample, attended, options))
    tokens = [next(names) if is_attended else None for is_attended in attended.tolist()]
    rationale = sample.tensors.get("rationale")
    return Input(
        sample_id=sample.sample_id,
        tokens=tokens,
        annotation=None if rationale is None else rationale.numpy().astype(np.uint8),
        # A separator between two texts stands at neither end: its name tells.
        scored=(_content(sample).numpy() & scored_tokens(tokens)).tolist(),
    )


def _names(sample: Sample, attended: Bool[Tensor, " tokens"], options: DisplayOptions) -> list[str]:
    """Return what the tokens of a text are called; rows have their numbers."""
    if not _is_text(sample):
        return [str(place) for place in attended.nonzero().flatten().tolist()]
    return options.name_tokens(sample.tensors["input_ids"][attended].tolist())


def _is_text(sample: Sample) -> bool:
    return "input_ids" in sample.tensors


def _as_batch(sample: Sample) -> dict[str, Tensor]:
    return {name: value[None] for name, value in sample.tensors.items()}


def _content(sample: Sample) -> Bool[Tensor, " tokens"]:
    """Return True at the tokens of a text that are scored, neither special nor padding nor ignored, or at rows."""
    return content_tokens(_as_batch(sample))[0] if _is_text(sample) else _attended(sample)


def _attended(sample: Sample) -> Bool[Tensor, " tokens"]:
    """Return True at the tokens of a text, or at the rows, that are no padding."""
    if not _is_text(sample):
        return present_rows(_as_batch(sample))[0]
    ids = sample.tensors["input_ids"]
    return sample.tensors["attention_mask"].bool() if "attention_mask" in sample.tensors else ids >= 0


def caption(explained: ExplainedSample, class_names: Sequence[str]) -> str:
    """Return one line: id, label, prediction, and the share of relevance on the annotation."""
    predicted = f"{explained.answer_in(class_names)} ({explained.probability:.0%})"
    parts = [f"#{explained.sample.sample_id}", f"{explained.label_in(class_names)} predicted as {predicted}"]
    share = next((value for name, value in explained.values.items() if name.endswith(FOCUS)), float("nan"))
    if not np.isnan(share):
        parts.append(f"{share:.0%} on the annotation ({explained.chance:.0%} of the area)")
    return ", ".join(parts)
