"""The control that every comparison needs."""

import torch

from lrptrain.relevance.content import content_mask, content_seeds
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.occlusion import number_of_tokens
from lrptrain.relevance.registry import Maps, method


@method(class_specific=False, signed=False, differentiable=False, source="-")
def random(explanation: Explanation, seed: int = 0) -> Maps:
    """Uniform random scores. A sample's own content seeds them, so that batching does not change its map."""
    recording = explanation.recording
    mask = content_mask(recording, number_of_tokens(recording)).cpu()
    scores = torch.zeros(mask.shape)
    for row, content, own in zip(scores, mask, content_seeds(recording, seed), strict=True):
        row[content] = torch.rand(int(content.sum()), generator=torch.Generator().manual_seed(own))
    return Maps(scores.to(recording.logits.device))
