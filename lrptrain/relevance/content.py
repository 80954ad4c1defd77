"""What belongs to a sample itself: its tokens without the padding, and a seed made of them."""

import zlib

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.relevance.recording import Recording


def content_mask(recording: Recording, tokens: int) -> Bool[Tensor, "batch tokens"]:
    """True at a sample's own tokens, False at its padding."""
    if recording.padding is not None:
        return recording.padding.bool()
    return torch.ones(recording.samples, tokens, dtype=torch.bool, device=recording.logits.device)


def content_seeds(recording: Recording, seed: int) -> list[int]:
    """One seed per sample, of its own content, so that neither its neighbours in the batch nor padding change it."""
    leaf = recording.tape.token_ids if recording.tape.token_ids is not None else recording.tape.leaf
    assert leaf is not None
    samples = list(leaf.detach().cpu())
    if recording.padding is not None:
        samples = [sample[content] for sample, content in zip(samples, recording.padding.bool().cpu(), strict=True)]
    contents = (sample.contiguous().view(torch.uint8).numpy().tobytes() for sample in samples)
    return [zlib.crc32(content) * 1_000_003 + seed for content in contents]
