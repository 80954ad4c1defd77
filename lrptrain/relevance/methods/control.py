"""The control that every comparison needs."""

import zlib

import torch

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.registry import Maps, method


@method(class_specific=False, signed=False, differentiable=False, source="-")
def random(explanation: Explanation, seed: int = 0) -> Maps:
    """Uniform random scores. A sample's own content seeds them, so that batching does not change its map."""
    recording = explanation.recording
    leaf = recording.tape.token_ids if recording.tape.token_ids is not None else recording.tape.leaf
    assert leaf is not None
    inputs, length = leaf.detach().cpu(), len(recording.layout.positions)
    mask = torch.ones(len(inputs), length) if recording.padding is None else recording.padding.cpu()
    scores = torch.zeros(len(inputs), length)
    for sample, content, row in zip(inputs, mask.bool(), scores, strict=True):
        row[content] = _uniform(sample if recording.padding is None else sample[content], int(content.sum()), seed)
    return Maps(scores.to(recording.logits.device))


def _uniform(sample: torch.Tensor, length: int, seed: int) -> torch.Tensor:
    content = zlib.crc32(sample.contiguous().view(torch.uint8).numpy().tobytes())
    generator = torch.Generator().manual_seed(content * 1_000_003 + seed)
    return torch.rand(length, generator=generator)
