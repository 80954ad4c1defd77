"""Does a map rank the tokens as other evidence does? (Jain & Wallace 2019, section 4.1)."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.audit.attention import content_tokens, evaluating, record_replaced
from lrptrain.audit.distances import class_probabilities, total_variation
from lrptrain.extras import require
from lrptrain.relevance import attribute, record
from lrptrain.relevance.recording import Inputs, Recording, Target, read_logits
from lrptrain.relevance.rerun import number_of_tokens, rerun, without

Reference = Literal["gradient", "leave_one_out"]


@dataclass(frozen=True)
class MapCorrelation:
    """Kendall's rank correlation (tau-b) of a map and a reference, per sample.

    Attributes:
        tau: In [-1, 1]; nan where either is constant or there are fewer than two content tokens.
        p_value: Two-sided, of the hypothesis that they are not associated.
    """

    tau: Float[Tensor, " batch"]
    p_value: Float[Tensor, " batch"]


def map_correlation(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    method: str,
    reference: Reference | Float[Tensor, "batch tokens"] = "gradient",
    **options: Any,
) -> MapCorrelation:
    """Correlate the map of a method with a reference, over the content tokens of every sample.

    Both references say how much a token matters, not for which class: of signed maps the absolute value is compared.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        target: The class to explain; None for the predicted one.
        method: One of `lrptrain.methods()`.
        reference: Its name, or what `reference_scores` gave, so that several methods can share it.
        **options: Of the method.

    Raises:
        ValueError: If there is no such reference; and whatever `lrptrain.attribute` raises.
    """
    if isinstance(reference, str):
        reference = reference_scores(model, inputs, target, reference)
    with evaluating(model) as model:
        scores = attribute(model, inputs, target, method, **options).scores.detach().abs()
    return rank_association(scores, reference, content_tokens(inputs, scores.shape[1]))


def reference_scores(
    model: nn.Module, inputs: Inputs, target: Target, reference: Reference, at_once: int = 64
) -> Float[Tensor, "batch tokens"]:
    """How much every token matters, by other evidence than a map.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        target: The class whose logit is differentiated; None for the predicted one.
        reference: "gradient": |sum of gradient * input over the token's features|, with attention held fixed in the
            backward pass. "leave_one_out": total variation distance of the class probabilities when the token is taken
            away as the method `leave_one_out` does it; 0 at tokens that are not content.
        at_once: Samples in one forward pass, when tokens are taken away.

    Raises:
        ValueError: If there is no such reference.
    """
    if reference not in get_args(Reference):
        raise ValueError(f"reference must be one of {', '.join(get_args(Reference))}, not {reference!r}")
    with evaluating(model) as model:
        if reference == "leave_one_out":
            return _leave_one_out(record(model, inputs), inputs, at_once)
        fixed = record_replaced(model, inputs, lambda _, attention: attention.detach())
        return fixed.attribute(target, "input_x_gradient").scores.detach().abs()


@torch.no_grad()
def _leave_one_out(recording: Recording, inputs: Inputs, at_once: int) -> Float[Tensor, "batch tokens"]:
    tokens = number_of_tokens(recording)
    usable = content_tokens(inputs, tokens)
    number = torch.arange(tokens, device=usable.device)
    sample = torch.arange(len(usable), device=usable.device)
    whole = torch.stack([sample, torch.full_like(sample, -1)], 1)  # takes nothing away
    pairs = torch.cat([whole, usable.nonzero()])
    answers = torch.cat([_probabilities(recording, number != part[:, 1:], part[:, 0]) for part in pairs.split(at_once)])
    before, after = answers.tensor_split([len(usable)])
    distance = total_variation(before[pairs[len(usable) :, 0]], after)
    return distance.new_zeros(usable.shape).masked_scatter(usable, distance)


def _probabilities(recording: Recording, kept: Tensor, rows: Tensor) -> Float[Tensor, "rows classes"]:
    assert recording.tape.leaf is not None
    values, mask = without(recording, recording.tape.leaf.detach(), kept, rows)
    return class_probabilities(read_logits(rerun(recording, values, rows, mask), len(rows)))


def rank_association(
    first: Float[Tensor, "batch tokens"], second: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]
) -> MapCorrelation:
    """Kendall's tau-b of two maps over the usable tokens, per sample."""
    kendall = require("scipy.stats", "monitor").kendalltau
    maps = (x.detach().cpu().double().numpy() for x in (first, second))
    rows = zip(*maps, usable.cpu().numpy(), strict=True)
    found = [kendall(a[mask], b[mask]) if mask.sum() > 1 else (torch.nan, torch.nan) for a, b, mask in rows]
    tau, p_value = torch.tensor([tuple(result) for result in found], dtype=torch.float64).reshape(-1, 2).T
    return MapCorrelation(tau, p_value)
