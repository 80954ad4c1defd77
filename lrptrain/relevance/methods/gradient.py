"""Methods on the gradient at the input: once, along a path, or averaged over noise."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.layers import gradient_at, input_maps, layer_maps, recorded
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.passes.rerun import answers, in_parts, input_gradient
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps, method


@method(class_specific=True, signed=True, reaches_input=True, needs="gradient", source="Shrikumar et al. 2016")
def input_x_gradient(explanation: Explanation, layer: str | None = None) -> RelevanceMaps:
    """Input times gradient (Shrikumar et al. 2016), at the pixels or the word embeddings; or of a layer's output.

    Not at the sum of word, position and type embeddings: the layer norm behind it does not see its length, so that
    there the products of every token sum to 0.

    Args:
        explanation: The forward pass and the target.
        layer: As of `attnlrp`.
    """
    if layer is not None:
        states, at_layer = gradient_at(explanation, layer)
        recording = explanation.recording.on_tape
        return layer_maps(recording, layer, recorded(recording, layer, states), states * at_layer)
    root = explanation.recording.watched.root
    assert root is not None
    (gradient,) = explanation.gradient([root])
    return input_maps(explanation.recording, at_least_float32(_leaf(explanation)) * at_least_float32(gradient))


@method(class_specific=True, signed=True, reaches_input=True, needs="gradient", source="Sundararajan et al. 2017")
def integrated_gradients(
    explanation: Explanation,
    steps: int | None = None,
    baseline: float | Tensor = 0.0,
    at_once: int = 16,
    tolerance: float = 0.02,
) -> RelevanceMaps:
    """Integrated gradients (Sundararajan et al. 2017), at the pixels or the word embeddings.

    The integral along the straight line from the baseline is taken by Gauss-Legendre quadrature. The relevance sums to
    the explained logit minus that of the baseline, up to the quadrature's error: `Relevance.convergence_delta`. It
    costs `steps` forward and backward passes. A map that has not converged comes with a `RelevanceWarning`.

    Args:
        explanation: The forward pass and the target.
        steps: Points on the line. By default 32, and twice as many, up to 256, for every sample whose map has not
            converged; with `create_graph` 32.
        baseline: Where the line starts: a number, or a tensor that broadcasts to the input.
        at_once: Samples in one forward and backward pass; with `create_graph` all their graphs are kept to the end.
        tolerance: The largest convergence delta of a map that counts as converged, as a share of the change of the
            logit, or of a tenth of the absolute scores of all tokens where that is more.
    """
    leaf = _leaf(explanation)
    start = torch.as_tensor(baseline, dtype=at_least_float32(leaf).dtype, device=leaf.device).expand_as(leaf)
    points = FIRST_STEPS if steps is None else steps
    everyone = torch.arange(len(leaf), device=leaf.device)
    relevance = _along_line(explanation, start, everyone, points, at_once)
    if explanation.create_graph:
        return input_maps(explanation.recording, relevance)
    change = _change_of_answer(explanation, start, at_once)
    error = _convergence_error(explanation, relevance, change)
    while steps is None and points < MOST_STEPS and bool((error > tolerance).any()):
        points *= 2
        rows = (error > tolerance).nonzero().flatten()
        again = _along_line(explanation, start, rows, points, at_once)
        relevance = relevance.index_copy(0, rows, again[rows])
        error = _convergence_error(explanation, relevance, change)
    # Whoever chose the steps is told of an error that changes the map's reading, not of every rounding.
    if bool((error > (tolerance if steps is None else BADLY_CONVERGED)).any()):
        _warn_of_error(explanation, error, points)
    delta = relevance.flatten(1).sum(1) - change
    return replace(input_maps(explanation.recording, relevance), convergence_delta=delta)


FIRST_STEPS = 32
"""Points on the line of integrated gradients, at first."""
MOST_STEPS = 256
"""The most points for a map that does not converge."""
BADLY_CONVERGED = 0.25
"""From which share of the logit's change on an error is said of a map whose steps were chosen by the caller."""


def _along_line(
    explanation: Explanation, start: Float[Tensor, "batch ..."], rows: Int[Tensor, " rows"], steps: int, at_once: int
) -> Float[Tensor, "batch ..."]:
    """Integrated gradients of some samples; 0 for the others."""
    leaf = _leaf(explanation)
    nodes, weights = (
        torch.as_tensor(x, device=leaf.device) / 2 for x in np.polynomial.legendre.leggauss(max(steps, 1))
    )
    positions = (nodes + 0.5).to(start.dtype).view(-1, *[1] * (leaf.ndim - 1))
    gradient = _mean_gradient(
        explanation,
        lambda step, rows: torch.lerp(start[rows], at_least_float32(leaf[rows]), positions[step]),
        weights[: max(steps, 0)],
        at_once,
        rows,
    )
    return (at_least_float32(leaf) - start) * gradient


def _change_of_answer(
    explanation: Explanation, start: Float[Tensor, "batch ..."], at_once: int
) -> Float[Tensor, " batch"]:
    """The explained logit minus that of the baseline."""
    leaf = _leaf(explanation)
    answer = explanation.explained(at_least_float32(explanation.recording.logits))
    everyone = torch.arange(len(leaf), device=leaf.device)
    at_baseline = [
        answers(explanation, start[rows].to(leaf.dtype), rows) for rows in torch.split(everyone, max(at_once, 1))
    ]
    return answer - torch.cat(at_baseline)


def _convergence_error(
    explanation: Explanation, relevance: Float[Tensor, "batch ..."], change: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """The convergence delta as a share; see `tolerance` of `integrated_gradients`."""
    # Of the tokens, not of the numbers of an embedding: those cancel within a token, and would hide an error.
    size = input_maps(explanation.recording, relevance).scores.abs().sum(1) / 10
    return (relevance.flatten(1).sum(1) - change).abs() / torch.maximum(change.abs(), size)


def _warn_of_error(explanation: Explanation, error: Float[Tensor, " batch"], steps: int) -> None:
    worst = int(error.nan_to_num().argmax())
    more = f"pass steps={2 * steps} or more" if steps >= MOST_STEPS else "leave steps out, for as many as are needed"
    warn_once(
        explanation.recording.model,
        "integrated_gradients",
        f"integrated_gradients has not converged: after {steps} steps the map of sample {worst} is off by "
        f"{float(error[worst]):.0%} of the change of the logit, or of a tenth of all absolute scores where that is "
        "more (Relevance.convergence_delta says it of every sample); "
        f"{more}, or a nearer baseline",
    )


@method(class_specific=True, signed=False, reaches_input=True, needs="gradient", source="Smilkov et al. 2017")
def smoothgrad(
    explanation: Explanation, samples: int = 16, noise: float = 0.15, seed: int = 0, at_once: int = 16
) -> RelevanceMaps:
    """SmoothGrad (Smilkov et al. 2017): the mean gradient over noisy copies of the input.

    The map is the absolute value of that mean, summed over the channels or the width of the embeddings, as in the
    paper's figures: a sensitivity, whose sign at a single pixel says nothing of whether the pixel speaks for the class.
    A sample's own content seeds its noise, so that batching and padding do not change its map. It costs `samples`
    forward and backward passes.

    Args:
        explanation: The forward pass and the target.
        samples: Noisy copies.
        noise: Standard deviation of the Gaussian noise, as a share of the range (largest minus smallest number) of the
            sample's pixels or word embeddings, padding aside.
        seed: Seed of the noise.
        at_once: Samples in one forward and backward pass; with `create_graph` all their graphs are kept to the end.
    """
    leaf = _leaf(explanation)
    weights = leaf.new_full((max(samples, 0),), 1 / max(samples, 1), dtype=torch.float64)
    draw = _noise(explanation, noise, seed, samples)
    gradient = _mean_gradient(
        explanation, lambda copy, rows: at_least_float32(leaf[rows]) + draw(copy, rows), weights, at_once
    )
    return input_maps(explanation.recording, gradient.abs())


def _leaf(explanation: Explanation) -> Float[Tensor, "batch ..."]:
    leaf = explanation.recording.leaf
    return leaf if explanation.create_graph else leaf.detach()


def _mean_gradient(
    explanation: Explanation,
    point: Callable[[Tensor, Tensor], Tensor],
    weights: Float[Tensor, " copies"],
    at_once: int,
    chosen: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "batch ..."]:
    """Weighted sum of the gradients at `point(copies, rows)`, several points and samples per forward pass.

    It is 0 for samples that are not chosen.
    """
    leaf = _leaf(explanation)
    total = torch.zeros_like(at_least_float32(leaf))
    chosen = torch.arange(len(leaf), device=leaf.device) if chosen is None else chosen
    for copy, part in in_parts(len(chosen), len(weights), at_once, leaf.device):
        rows = chosen[part]
        gradient = at_least_float32(input_gradient(explanation, point(copy, rows).to(leaf.dtype), rows))
        weighted = gradient * weights[copy].to(gradient.dtype).view(-1, *[1] * (leaf.ndim - 1))
        total = total.index_add(0, rows, weighted)
    return total


def _noise(explanation: Explanation, level: float, seed: int, copies: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Noise for copies of samples; every sample draws its own, for its content only."""
    recording = explanation.recording
    leaf = at_least_float32(_leaf(explanation))
    ones = [1] * (leaf.ndim - 1)
    explained = recording.explained
    content = explained.at_places(recording.content_mask(explained.tokens), True).expand(leaf.shape)
    high = torch.where(content, leaf, -torch.inf).flatten(1).amax(1)
    low = torch.where(content, leaf, torch.inf).flatten(1).amin(1)
    scale = (level * (high - low)).view(-1, *ones)
    seeds = recording.content_seeds(seed * copies)
    is_content = content.cpu()

    def draw(copy: Int[Tensor, " rows"], rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows ..."]:
        unit = torch.zeros(len(rows), *leaf.shape[1:], dtype=leaf.dtype)
        for i, (number, row) in enumerate(zip(copy.tolist(), rows.tolist(), strict=True)):
            generator = torch.Generator().manual_seed(seeds[row] + number)
            count = int(is_content[row].sum())
            unit[i][is_content[row]] = torch.randn(count, generator=generator, dtype=leaf.dtype)
        return unit.to(leaf.device) * scale[rows]

    return draw
