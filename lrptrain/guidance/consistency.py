"""Counterfactual consistency: what lies outside the evidence is swapped, and the prediction should stay.

Unlike a loss on a map, it cannot be met by a map that merely looks right.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED

Images = Float[Tensor, "batch channels height width"]
Tokens = Shaped[Tensor, "batch tokens *width"]
Swapped = Bool[Tensor, " batch"]


def swap_outside(
    images: Images,
    mask: Shaped[Tensor, "batch height width"],
    margin: int = 2,
    generator: torch.Generator | None = None,
) -> tuple[Images, Swapped]:
    """Replace everything outside of the evidence by another image of the batch, by its object, too, if it lies there.

    Args:
        images: At least two of them, or nothing is swapped.
        mask: 1 evidence, 0 not, 255 ignored, of the images' size. What is ignored is kept.
        margin: Pixels around the evidence that are kept, too: at an exact edge the shape of the evidence would be all
            that is left of its surroundings.
        generator: Of the order in which the images lend each other their surroundings.

    Returns:
        The images, and which of them were swapped; those without any evidence are as before.

    Raises:
        ValueError: If the sizes differ or the margin is negative.
    """
    if mask.shape != (images.shape[0], *images.shape[2:]):
        raise ValueError(
            f"mask {tuple(mask.shape)} must be [batch, height, width] of the images, which are {tuple(images.shape)}"
        )
    if margin < 0:
        raise ValueError(f"margin must not be negative, got {margin}")
    annotated = _marked(mask)
    kept = ((mask == 1) | (mask == IGNORED))[:, None].to(images.dtype)
    kept = F.max_pool2d(kept, 2 * margin + 1, stride=1, padding=margin) > 0
    lender = _another(len(images), generator).to(images.device)
    return torch.where(kept | ~annotated[:, None, None, None], images, images[lender]), annotated


def swap_tokens(
    tokens: Tokens,
    rationale: Shaped[Tensor, "batch tokens"],
    margin: int = 0,
    generator: torch.Generator | None = None,
) -> tuple[Tokens, Swapped]:
    """Replace every token outside of the evidence by a random one of another text of the batch.

    Args:
        tokens: Ids, or embeddings, of at least two texts, or nothing is swapped.
        rationale: 1 evidence, 0 not, 255 ignored. What is ignored (special tokens, padding) is kept, and never lent.
        margin: Tokens on each side of the evidence that are kept, too.
        generator: Of which text lends to which, and what.

    Returns:
        The tokens, and which texts were swapped; those without any evidence are as before.

    Raises:
        ValueError: If the shapes differ or the margin is negative.
    """
    if rationale.shape != tokens.shape[:2]:
        raise ValueError(f"rationale {tuple(rationale.shape)} must be [batch, tokens] of {tuple(tokens.shape)}")
    if margin < 0:
        raise ValueError(f"margin must not be negative, got {margin}")
    usable = rationale != IGNORED
    lenders = usable.any(1).nonzero().flatten()
    annotated = _marked(rationale) & (len(lenders) > 1)
    lender = torch.arange(len(tokens), device=tokens.device)
    lender[lenders] = lenders[_another(len(lenders), generator).to(lenders.device)]
    near = F.max_pool1d((rationale == 1).float(), 2 * margin + 1, stride=1, padding=margin) > 0
    weights = torch.where(annotated[:, None], usable[lender].float(), 1.0).cpu()
    place = torch.multinomial(weights, tokens.shape[1], replacement=True, generator=generator).to(tokens.device)
    swapped = usable & ~near & annotated[:, None]
    spread = [*swapped.shape, *[1] * (tokens.ndim - 2)]
    return torch.where(swapped.view(spread), tokens[lender[:, None], place], tokens), annotated


def divergences(
    logits: Float[Tensor, "batch classes"], swapped: Float[Tensor, "batch classes"]
) -> Float[Tensor, " batch"]:
    """KL(p(x) || p(swapped x)) of every sample, in nats; a single logit is one of two classes, the other's being 0."""
    p, q = two_classes(logits).log_softmax(-1), two_classes(swapped).log_softmax(-1)
    return F.kl_div(q, p, log_target=True, reduction="none").sum(-1)


def consistency(
    logits: Float[Tensor, "batch classes"], swapped: Float[Tensor, "batch classes"], annotated: Swapped
) -> Float[Tensor, ""]:
    """KL(p(x) || p(swapped x)), mean over the annotated samples; 0 if there are none."""
    return torch.where(annotated, divergences(logits, swapped), 0).sum() / annotated.sum().clamp(min=1)


def two_classes(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
    """The logits; of a binary model with one logit that of the other class, 0, before it."""
    return logits if logits.shape[1] > 1 else torch.cat([torch.zeros_like(logits), logits], 1)


def _marked(annotation: Shaped[Tensor, "batch *area"]) -> Swapped:
    """What may be swapped: of a sample that marks nothing, nothing would be left."""
    return (annotation == 1).flatten(1).any(1) & (len(annotation) > 1)


def _another(count: int, generator: torch.Generator | None) -> Tensor:
    """For each index another one, each used once: a random cycle."""
    order = torch.randperm(count, generator=generator)
    return torch.empty_like(order).index_copy_(0, order, order.roll(1))
