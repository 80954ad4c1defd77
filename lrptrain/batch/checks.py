"""Values that cannot be used: which samples of a batch hold some, and what is wrong with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lrptrain.batch.annotations import boxes_to_mask, split_values
from lrptrain.batch.call import IMAGES, batch_length, samples_of
from lrptrain.batch.rows import has_rows


@dataclass(frozen=True)
class Limits:
    """What values may be at most, as far as it is known."""

    classes: int | None = None
    vocabulary: int | None = None


def vocabulary_size(model: nn.Module) -> int | None:
    """Return how many rows the model's table of tokens has, beyond which no token id can lie.

    Returns:
        None where the model does not say which of its tables that is, as the models of Hugging Face do by
        `get_input_embeddings`: another embedding may be that of positions, or the tokens' a parameter.
    """
    try:
        table = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def check_values(batch: Mapping[str, Any], limits: Limits = Limits()) -> None:
    """Reject values that no sample can have."""
    _check_inputs(batch, limits)
    _check_label(batch, limits)
    _check_mask(batch)
    _check_boxes(batch)
    _check_rationale(batch)


def unusable(batch: Mapping[str, Any], limits: Limits = Limits()) -> dict[int, str]:
    """Return the rows of a batch whose values cannot be used, and why."""
    try:
        check_values(batch, limits)  # all at once: nearly always nothing is wrong
    except Exception:  # whatever a value does to a check is a problem of this value, not of the run
        problems = {row: _problem(batch, row, limits) for row in range(batch_length(batch))}
        return {row: problem for row, problem in problems.items() if problem}
    return {}


def _problem(batch: Mapping[str, Any], row: int, limits: Limits) -> str:
    try:
        check_values(samples_of(batch, slice(row, row + 1)), limits)
    except ValueError as error:
        return str(error)
    except Exception as error:
        return f"its values cannot be checked ({type(error).__name__}: {error})"
    return ""


def _check_inputs(batch: Mapping[str, Any], limits: Limits) -> None:
    for name in IMAGES:
        image = batch.get(name)
        if image is not None and image.is_floating_point() and not bool(image.isfinite().all()):
            raise ValueError(
                f"{name!r} holds NaN or infinity: replace such numbers in the dataset (torch.nan_to_num), or leave the "
                "sample out of it"
            )
    ids = batch.get("input_ids")
    if ids is None or ids.is_floating_point() or not ids.numel():
        return
    if ids.ndim != 2:
        raise ValueError(
            f"'input_ids' {list(ids.shape)} is neither a text [batch, tokens] nor one in chunks, [batch, chunks, "
            "tokens]: lrptrain.attribute explains it"
        )
    low = int(ids.min())
    high = int(ids.max())
    if low < 0 or (limits.vocabulary is not None and high >= limits.vocabulary):
        last = "" if limits.vocabulary is None else f" to {limits.vocabulary - 1}"
        raise ValueError(
            f"'input_ids' holds {low if low < 0 else high}, but the model's embedding knows the ids 0{last}: take the "
            "tokenizer that belongs to the model, or resize its embedding"
        )


def _check_label(batch: Mapping[str, Any], limits: Limits) -> None:
    label = batch.get("label")
    if label is None or limits.classes is None or not label.numel() or int(label.max()) < limits.classes:
        return
    raise ValueError(
        f"the label {int(label.max())} is no class of the model: as a target it is out of range for {limits.classes} "
        f"classes (0 to {limits.classes - 1}); a negative label means none, and of grades with a logit for each step "
        "between them task=lrptrain.Ordinal() says so"
    )


def _check_mask(batch: Mapping[str, Any]) -> None:
    mask = batch.get("mask")
    volume = next((batch[name] for name in IMAGES if name in batch and batch[name].ndim == 5), None)
    if mask is not None and volume is not None:
        _check_mask_of_volume(mask, volume)
    image = _image(batch)
    series = next((batch[name] for name in IMAGES if name in batch and batch[name].ndim == 3), None)
    if mask is not None and series is not None and mask.ndim == 2 and mask.shape[1] not in series.shape[1:]:
        raise ValueError(f"'mask' {list(mask.shape)} must mark steps of the series {list(series.shape)}, one by one")
    if mask is None or image is None:
        return
    if mask.ndim not in (3, 4):
        raise ValueError(
            f"'mask' must be [batch, height, width], or [batch, regions, height, width], not {list(mask.shape)}"
        )
    split_values(mask, "mask")
    if tuple(mask.shape[-2:]) == tuple(image.shape[1:3]) and image.shape[-1] in (1, 3, 4) and image.shape[1] > 4:
        raise ValueError(
            f"images {list(image.shape)} have their channels last: give the batch [batch, channels, height, width] "
            "(image.permute(0, 3, 1, 2)), or say so in a batch_adapter"
        )
    check_aspect_ratio((mask.shape[-2], mask.shape[-1]), (image.shape[-2], image.shape[-1]))


def _check_mask_of_volume(mask: Tensor, volume: Tensor) -> None:
    split_values(mask, "mask")
    places = [tuple(volume.shape[2:]), (volume.shape[1], *volume.shape[3:])]  # of a video, frames come first
    if mask.ndim not in (4, 5) or tuple(mask.shape[-3:]) not in places:
        raise ValueError(
            f"'mask' {list(mask.shape)} must have the slices, height and width of its volume {list(volume.shape)}"
        )


def check_aspect_ratio(mask: tuple[int, int], image: tuple[int, int]) -> None:
    """Reject masks that would be stretched to fit their images.

    Args:
        mask: Height and width of a mask. It may be smaller or larger than the image, by the same factor either way, as
            far as whole pixels allow.
        image: Height and width of its image.
    """
    # A mask of 7 x 9 fits an image of 224 x 300: 7 * 300 / 224 = 9.4 columns, which were rounded.
    (small_height, small_width), (height, width) = sorted((mask, image))
    if abs(small_height * width / height - small_width) > 1 and abs(small_width * height / width - small_height) > 1:
        raise ValueError(
            f"masks of {mask[0]} x {mask[1]} for images of {image[0]} x {image[1]} pixels have another shape and would "
            "be stretched: resize and crop masks as their images, by nearest neighbour"
        )


def _check_boxes(batch: Mapping[str, Any]) -> None:
    boxes = batch.get("boxes")
    image = _image(batch)
    if boxes is None or image is None or "mask" in batch:
        return
    height, width = image.shape[-2:]
    drawn = boxes_to_mask(boxes, (height, width))
    if not boxes.shape[1]:  # no image of the batch has a box
        return
    present = ~boxes.isnan().flatten(1).all(1)
    # Of boxes in pixels some corner lies beyond the first pixel.
    relative = present & (boxes.nan_to_num(0.0).flatten(1).amax(1) <= 1)
    if bool(relative.any()) and min(height, width) > 1:
        raise ValueError(
            "'boxes' lie in 0..1, but corners are in pixels: multiply x by the image's width and y by its height"
        )
    covers_nothing = present & ~(drawn == 1).flatten(1).any(1)
    # A crop may cut boxes; one that ends twice as far as its image was drawn on a larger one.
    elsewhere = ((boxes[..., 2] > 2 * width) | (boxes[..., 3] > 2 * height)).any(1)
    if bool((covers_nothing | elsewhere).any()):
        problem = "cover no pixel of" if bool(covers_nothing.any()) else "end far outside of"
        raise ValueError(
            f"'boxes' {problem} their image of {height} x {width}: they are (x1, y1, x2, y2) in pixels of the image as "
            "the model is given it, resized and cropped with it"
        )


def _check_rationale(batch: Mapping[str, Any]) -> None:
    rationale = batch.get("rationale")
    name = next((name for name in ("input_ids", *IMAGES) if name in batch), "")
    if rationale is None or not (name == "input_ids" or has_rows(batch)):
        return
    split_values(rationale, "rationale")
    if rationale.shape != batch[name].shape[:2]:
        raise ValueError(
            f"'rationale' {tuple(rationale.shape)} must have the shape of {name!r} {tuple(batch[name].shape[:2])}"
        )


def _image(batch: Mapping[str, Any]) -> Tensor | None:
    """Return images `[batch, channels, height, width]`, None where there are none."""
    image = next((batch[name] for name in IMAGES if name in batch), None)
    return image if image is not None and image.ndim == 4 else None
