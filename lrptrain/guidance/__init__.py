"""Losses that tell a model where to look: on its relevance maps, and on swapped surroundings.

Examples:
    >>> import torch
    >>> from lrptrain import record
    >>> from lrptrain.batch.annotations import mask_to_tokens
    >>> from lrptrain.guidance import consistency, guidance_loss, register_map_loss, right_reasons
    >>> scores, annotation = torch.tensor([[3.0, 1.0]]), mask_to_tokens(torch.tensor([[[1, 0]]]), (1, 2))
    >>> guidance_loss(scores, annotation, "energy")  # a quarter of the relevance lies outside the annotation
    tensor(0.2500)
    >>> @register_map_loss("largest_outside")
    ... def largest_outside(scores, annotation):
    ...     return (scores * (1 - annotation.evidence)).amax(-1)
    >>> guidance_loss(scores, annotation, "largest_outside")
    tensor(1.)
    >>> consistency(scores, scores, torch.tensor([True]))
    tensor(0.)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))
    >>> right_reasons(record(model, torch.rand(1, 1, 1, 2), differentiable=True), torch.zeros(1, 1, 2)).shape
    torch.Size([1])
"""

from lrptrain.guidance.losses import LOSSES, MAP_LOSSES, guidance_loss, register_loss, register_map_loss
from lrptrain.guidance.losses.consistency import consistency
from lrptrain.guidance.losses.rrr import right_reasons
from lrptrain.guidance.options import GuidanceOptions

__all__ = [
    "LOSSES",
    "MAP_LOSSES",
    "GuidanceOptions",
    "consistency",
    "guidance_loss",
    "register_loss",
    "register_map_loss",
    "right_reasons",
]
