"""Methods that take tokens away and look at what the model answers, and the one that does not look."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.passes.rerun import answers_without
from lrptrain.relevance.registry import RelevanceMaps, method


@method(
    class_specific=True,
    signed=True,
    full_precision=True,
    needs="answers",
    source="Zeiler & Fergus 2014; Li et al. 2016",
)
def leave_one_out(
    explanation: Explanation,
    window: int = 1,
    of: Literal["logit", "probability"] = "logit",
    baseline: float = 0.0,
    at_once: int = 64,
) -> RelevanceMaps:
    """How much the answer falls when a token is taken away (occlusion, Zeiler & Fergus 2014; erasure, Li et al. 2016).

    It costs one forward pass per token, and one more. A patch's pixels become `baseline`; so does a token's word
    embedding, and where the model was given an `attention_mask` no other token attends to it any more (to the one token
    that a classifier reads they do).

    Args:
        explanation: The forward pass and the target.
        window: Tokens that are taken away together: so many of a text, squares of so many patches a side. Each of them
            gets the whole fall.
        of: The number that falls: the explained "logit", or its "probability" (of a contrast: their difference).
        baseline: Value of what is taken away.
        at_once: Samples in one forward pass.

    Raises:
        ValueError: If an option has no such value.
    """
    if of not in ("logit", "probability") or window < 1 or at_once < 1:
        raise ValueError(
            f"of must be 'logit' or 'probability', window and at_once 1 or more, not {of!r}, {window}, {at_once}"
        )
    recording = explanation.recording
    groups = _groups(recording, window)
    device = recording.logits.device
    content = recording.content_mask(len(groups))
    present = torch.stack([(content & (groups == group)).any(1) for group in range(int(groups.max()) + 1)], 1)
    # Group -1 takes nothing away: the answer as it is, by the same kernels.
    complete = torch.stack(
        [torch.arange(recording.samples, device=device), groups.new_full((recording.samples,), -1)], 1
    )
    left_out = present.nonzero()
    outcomes = [
        answers_without(
            explanation, groups != part[:, 1:], part[:, 0], baseline=baseline, probability=of == "probability"
        )
        for part in (*torch.split(complete, at_once), *torch.split(left_out, at_once))
    ]
    before, after = torch.cat(outcomes).tensor_split([recording.samples])
    fall = before.new_zeros(present.shape).masked_scatter(present, before[left_out[:, 0]] - after)
    return RelevanceMaps(fall[:, groups])


def _groups(recording: Recording, window: int) -> Int[Tensor, " tokens"]:
    """Which tokens are taken away together: every token's number of its group."""
    device = recording.logits.device
    tokens = recording.explained.tokens
    grid = recording.grid
    if grid is None:
        return torch.arange(tokens, device=device) // window
    group = torch.zeros([1] * len(grid), dtype=torch.long, device=device)
    for axis, size in enumerate(grid):
        of_axis = torch.arange(size, device=device) // window
        group = group * (int(of_axis.max()) + 1) + of_axis.view([-1 if i == axis else 1 for i in range(len(grid))])
    return group.flatten()


@method(class_specific=False, signed=False, differentiable=False, needs="answers", source="-")
def random(explanation: Explanation, seed: int = 0) -> RelevanceMaps:
    """Uniform random scores, the control that every comparison needs.

    A sample's own content seeds them, so that batching does not change its map.
    """
    recording = explanation.recording
    mask = recording.content_mask(recording.explained.tokens).cpu()
    scores = torch.zeros(mask.shape)
    for row, content, sample_seed in zip(scores, mask, recording.content_seeds(seed), strict=True):
        row[content] = torch.rand(int(content.sum()), generator=torch.Generator().manual_seed(sample_seed))
    return RelevanceMaps(scores.to(recording.logits.device))
