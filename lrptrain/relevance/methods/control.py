"""The control that every comparison needs."""

import torch

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.rerun import number_of_tokens
from lrptrain.relevance.registry import RelevanceMaps, method


@method(class_specific=False, signed=False, differentiable=False, needs="answers", source="-")
def random(explanation: Explanation, seed: int = 0) -> RelevanceMaps:
    """Uniform random scores. A sample's own content seeds them, so that batching does not change its map."""
    recording = explanation.recording
    mask = recording.content_mask(number_of_tokens(recording)).cpu()
    scores = torch.zeros(mask.shape)
    for row, content, sample_seed in zip(scores, mask, recording.content_seeds(seed), strict=True):
        row[content] = torch.rand(int(content.sum()), generator=torch.Generator().manual_seed(sample_seed))
    return RelevanceMaps(scores.to(recording.logits.device))
