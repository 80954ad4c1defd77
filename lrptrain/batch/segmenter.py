"""Masks by a segmenter: a network of saliency, or of things and their background."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.outputs import described, field_of


def segmented(segmenter: nn.Module, image: Float[Tensor, "channels height width"]) -> Bool[Tensor, "height width"]:
    """Return what a segmenter takes for the thing in an image.

    Args:
        segmenter: Takes images `[1, channels, height, width]` as the batch holds them. Returns a map of saliency, of
            probabilities (above 0.5 is the thing) or of logits (above 0), or logits of classes, the first of them the
            background; as a tensor, as `.logits` or `["out"]`, or as the first of several.
        image: The image.
    """
    place = next((weight.device for weight in segmenter.parameters()), image.device)
    with torch.no_grad(), preserved(segmenter):
        segmenter.eval()
        output = segmenter(image[None].to(place))
    while isinstance(output, list | tuple) and output:
        output = output[0]
    found = field_of(output, "logits", "out")
    if found is None or found.ndim not in (3, 4) or len(found) != 1:
        raise ValueError(f"the segmenter must return a map [1, 1, height, width], not {described(output)}")
    scores = found.float().view(1, -1, *found.shape[-2:])
    if not bool(scores.isfinite().all()):
        raise ValueError("the segmenter returns numbers that are not finite")
    size = (image.shape[-2], image.shape[-1])
    if scores.shape[2:] != size:
        scores = F.interpolate(scores, size, mode="bilinear")
    if scores.shape[1] > 1:
        return scores[0].argmax(0).cpu() > 0
    are_probabilities = bool((found >= 0).all() and (found <= 1).all())
    return scores[0, 0].cpu() > (0.5 if are_probabilities else 0.0)
