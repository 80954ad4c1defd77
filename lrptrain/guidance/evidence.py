"""Which samples of a training batch have an annotation, and in one form, whichever they came in."""

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import (
    IGNORED,
    TokenAnnotation,
    boxes_to_mask,
    mask_to_tokens,
    rationale_to_tokens,
    split_values,
)
from lrptrain.batch.checks import check_aspect_ratio

# What the model got, compared with the batch's image in other places; measured on photographs of 32 and 64 pixels, of
# which none was taken for moved after noise, other colours, solarisation, blur or a mixture with another image.
TURNED_CORRELATION = 0.9
"""A flip or turn of the image correlates more than this with what the model got, if it is what the model got."""
SHIFTED_CORRELATION = 0.5
"""The same of a shift, of which what left the image on one side has no counterpart."""
CLEARLY = 0.05
"""A correlation that is higher by this much is higher, not as high."""
SHARPER = 3.0
"""The peak of a shift in the phase correlation, over the highest value around no shift."""


def evidence(batch: Mapping[str, Any]) -> Shaped[Tensor, " batch *area"]:
    """Return the annotation of a batch: 1 evidence, 0 not, 255 ignored.

    Args:
        batch: A batch in the contract's form (`lrptrain.batch.read_batch`).

    Returns:
        `[batch, height, width]` for images (of the first region where there are several;
            boxes are drawn, masks of another size resized),
        `[batch, tokens]` for texts, with padding ignored.

    Raises:
        ValueError: If there is none for this kind of input, or one of a wrong shape or with other values.
    """
    image = next((batch[name] for name in IMAGES if name in batch), None)
    if image is None:
        return _rationale(batch)
    if "mask" in batch:
        mask = batch["mask"][:, 0] if batch["mask"].ndim == 4 else batch["mask"]
        if mask.ndim != 3:
            raise ValueError(f"'mask' must be [batch, height, width], got {tuple(batch['mask'].shape)}")
        check_aspect_ratio((mask.shape[1], mask.shape[2]), (image.shape[-2], image.shape[-1]))
        # Called for its check of the values; they are split per token later, by `at_tokens`.
        split_values(mask, "mask")
        return _resized(_wide(mask), (image.shape[-2], image.shape[-1]))
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], (image.shape[-2], image.shape[-1]))
    raise ValueError(f"no annotation of images in a batch with {sorted(batch)}: guidance needs 'mask' or 'boxes'")


def _rationale(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch tokens"]:
    if "rationale" not in batch:
        raise ValueError(f"no annotation of texts in a batch with {sorted(batch)}: guidance needs 'rationale'")
    rationale = batch["rationale"]
    if rationale.shape != batch["input_ids"].shape:
        raise ValueError(
            f"'rationale' {tuple(rationale.shape)} must have the shape of 'input_ids' {tuple(batch['input_ids'].shape)}"
        )
    split_values(rationale, "rationale")
    rationale = _wide(rationale)
    padding = batch.get("attention_mask")
    return rationale if padding is None else rationale.masked_fill(padding == 0, IGNORED)


def _resized(
    mask: Shaped[Tensor, "batch height width"], size: tuple[int, int]
) -> Shaped[Tensor, "batch new_height new_width"]:
    """Return masks in the size of their images, by nearest neighbour: 1, 0 and 255 have no values between."""
    if mask.shape[1:] == size:
        return mask
    resized = torch.nn.functional.interpolate(mask[:, None].float(), size, mode="nearest-exact")
    return resized[:, 0].to(mask.dtype)


def _wide(annotation: Shaped[Tensor, " batch *area"]) -> Shaped[Tensor, " batch *area"]:
    """Return the annotation in a type that holds 255."""
    return annotation.long() if annotation.dtype == torch.int8 else annotation


def at_tokens(annotation: Shaped[Tensor, " batch *area"], grid: tuple[int, int] | None) -> TokenAnnotation:
    """Bring an annotation made by `evidence` to the model's tokens; samples that are all 255 have no part in any loss.

    Args:
        annotation: 1 evidence, 0 not, 255 ignored.
        grid: Rows and columns of an image's tokens; None for texts.
    """
    return rationale_to_tokens(annotation) if grid is None else mask_to_tokens(annotation, grid)


def guidable_samples(batch: Mapping[str, Any], needs_label: bool) -> Bool[Tensor, " batch"]:
    """Return which samples have an annotation, in the batch as "evidence", and a label if one is needed.

    Raises:
        ValueError: If labels are missing altogether.
    """
    guidable = has_annotation(batch["evidence"])
    if not needs_label:
        return guidable
    if "label" not in batch:
        raise ValueError(
            f"no 'label' in a batch with {sorted(batch)}: maps of its class need it; or target='predicted'"
        )
    return guidable & (batch["label"] >= 0).to(guidable.device)


def has_annotation(annotation: Shaped[Tensor, " batch *area"]) -> Bool[Tensor, " batch"]:
    """Return which samples have anything that may be judged."""
    return (annotation != IGNORED).flatten(1).any(1)


def without_annotation(batch: Mapping[str, Any], rows: Collection[int]) -> dict[str, Any]:
    """Return the batch as if nobody had annotated some of its samples.

    Args:
        batch: A batch in the contract's form.
        rows: The rows of these samples.
    """
    absent = {"mask": IGNORED, "rationale": IGNORED, "boxes": float("nan")}
    filled = dict(batch)
    for name in absent.keys() & batch.keys():
        filled[name] = batch[name].clone()
        filled[name][list(rows)] = absent[name]
    return filled


def contrasted(annotation: Shaped[Tensor, " batch *area"]) -> Bool[Tensor, " batch"]:
    """Return which samples have evidence and something that is not: only these tell one place from another.

    Args:
        annotation: 1 evidence, 0 not, 255 ignored, as `evidence` makes it.
    """
    flat = annotation.flatten(1)
    return (flat == 1).any(1) & (flat == 0).any(1)


def moved_samples(
    seen: Shaped[Tensor, "batch channels height width"], image: Shaped[Tensor, "batch channels height width"]
) -> tuple[Bool[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Return which images the model sees in another place than the batch holds them, and which of them can tell.

    An image is moved if a flip or a quarter turn of the batch's image, or a shift by whole pixels, is clearly more like
    what the model got than the image in place. A normalisation, other colours, noise or a mixture of images make it
    less alike in every place. Crops that are resized are not noticed, nor shifts by a single pixel.

    Args:
        seen: What the model was given.
        image: What the batch holds.

    Returns:
        The moved images, and those with enough contrast to be compared at all.
    """
    image = image.to(seen.device)
    if seen.shape != image.shape:
        everywhere = torch.ones(len(image), dtype=torch.bool, device=seen.device)
        return everywhere, everywhere
    if torch.equal(seen, image.to(seen.dtype)):
        return torch.zeros(len(image), dtype=torch.bool, device=seen.device), _contrast(image).any(1)
    seen = seen.detach().float()
    image = image.detach().float()
    in_place = _correlation(seen, image)
    turns = [image.flip(-1), image.flip(-2), image.rot90(2, (2, 3))]
    if image.shape[2] == image.shape[3]:
        turns += [image.rot90(1, (2, 3)), image.rot90(3, (2, 3))]
    turned = torch.stack([_correlation(seen, turn) for turn in turns]).amax(0)
    # Symmetric images are as alike in both places, and noise lowers all correlations: neither passes both bounds.
    flipped = (turned > TURNED_CORRELATION) & (turned > in_place + CLEARLY)
    return flipped | _shifted(seen, image), (_contrast(seen) & _contrast(image)).any(1)


def _correlation(first: Tensor, second: Tensor) -> Float[Tensor, " batch"]:
    """Return the median of the channels' correlations, in either direction; 0 where none has contrast."""
    products = (_centred(first) * _centred(second)).sum(-1).abs()
    norms = _centred(first).norm(dim=-1) * _centred(second).norm(dim=-1)
    # Of the channels with contrast the median: one may have been mixed away, as in greyscale.
    counted = _contrast(first) & _contrast(second)
    return torch.where(counted, products / norms, float("nan")).nanmedian(1).values.nan_to_num(0.0)


def _contrast(image: Tensor) -> Bool[Tensor, "batch channels"]:
    """Return which channels have some: a flat one's rounding errors, or what noise makes of it, say nothing."""
    whole = image.detach().float().flatten(1).norm(dim=1, keepdim=True)
    return _centred(image).norm(dim=-1) > 1e-3 * whole


def _shifted(seen: Tensor, image: Tensor) -> Bool[Tensor, " batch"]:
    """Return which images are shifted by whole pixels, as by a crop after padding.

    The phase correlation (Kuglin and Hines, 1975) proposes one shift: natural images are smooth, so that their plain
    correlation has a broad peak, but that of their phases is sharp. The plain correlation at this shift decides.
    """
    first, second = (
        _centred(values.mean(1, keepdim=True)).view(len(values), *values.shape[2:]) for values in (seen, image)
    )
    cross = torch.fft.fft2(first) * torch.fft.fft2(second).conj()
    size = cross.abs()
    # Frequencies that hardly occur have the phases of rounding errors; they weigh little.
    floor = (1e-3 * size.amax((1, 2), keepdim=True)).clamp(min=1e-20)
    phases = torch.fft.ifft2(cross / (size + floor)).real.abs()
    # What lies within one pixel of no shift comes first.
    phases = phases.roll((1, 1), (1, 2))
    near = phases[:, :3, :3].amax((1, 2))
    phases[:, :3, :3] = 0
    peak = phases.roll((-1, -1), (1, 2)).flatten(1).max(1)
    norms = first.flatten(1).norm(dim=1) * second.flatten(1).norm(dim=1)
    plain = torch.fft.ifft2(cross).real.abs().flatten(1) / norms.clamp(min=1e-20)[:, None]
    shifted = plain.gather(1, peak.indices[:, None])[:, 0]
    sharp = peak.values > SHARPER * near
    return sharp & (shifted > SHIFTED_CORRELATION) & (shifted > plain[:, 0] + CLEARLY)


def _centred(values: Tensor) -> Float[Tensor, "batch channels pixels"]:
    flat = values.detach().float().flatten(2)
    return flat - flat.mean(-1, keepdim=True)


def in_annotated_fraction(batch: Mapping[str, Any], fraction: float, seed: int = 0) -> Bool[Tensor, " batch"]:
    """Return whether each sample belongs to a fixed random fraction of all, which its id alone decides.

    Args:
        batch: A batch with `sample_id`, integers or strings.
        fraction: The expected fraction, in 0..1.
        seed: The seed of the draw.

    Raises:
        ValueError: If there are no ids.
    """
    if "sample_id" not in batch:
        raise ValueError("annotated_fraction below 1 draws samples by their 'sample_id', which the batch lacks")
    drawn = [_uniform(f"{seed}/{sample_id}") < fraction for sample_id in batch["sample_id"]]
    return torch.tensor(drawn, dtype=torch.bool)


def _uniform(text: str) -> float:
    """Return a number in [0, 1) that looks random and depends on the text alone."""
    # Not `hash`, which Python salts anew in every process.
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big") / 2**56
