"""Methods on the gradient at the input: once, along a path, or averaged over noise."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.input_maps import input_maps
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.rerun import in_parts, input_gradient


@method(class_specific=True, signed=True, reaches_input=True, source="Shrikumar et al. 2016")
def input_x_gradient(explanation: Explanation) -> RelevanceMaps:
    """Input times gradient (Shrikumar et al. 2016), at the pixels or the word embeddings.

    Not at the sum of word, position and type embeddings: the layer norm behind it does not see its length, so that
    there the products of every token sum to 0.
    """
    root = explanation.recording.tape.root
    assert root is not None
    (gradient,) = explanation.gradient([root])
    return input_maps(explanation.recording, at_least_float32(_leaf(explanation)) * at_least_float32(gradient))


@method(class_specific=True, signed=True, reaches_input=True, source="Sundararajan et al. 2017")
def integrated_gradients(
    explanation: Explanation, steps: int = 32, baseline: float | Tensor = 0.0, at_once: int = 16
) -> RelevanceMaps:
    """Integrated gradients (Sundararajan et al. 2017), at the pixels or the word embeddings.

    The integral along the straight line from the baseline is taken by Gauss-Legendre quadrature. The relevance sums to
    the explained logit minus that of the baseline, up to the quadrature's error. It costs `steps` forward and backward
    passes.

    Args:
        explanation: The forward pass and the target.
        steps: Points on the line.
        baseline: Where the line starts: a number, or a tensor that broadcasts to the input.
        at_once: Samples in one forward and backward pass; with `create_graph` all their graphs are kept to the end.
    """
    leaf = _leaf(explanation)
    start = torch.as_tensor(baseline, dtype=at_least_float32(leaf).dtype, device=leaf.device).expand_as(leaf)
    nodes, weights = (
        torch.as_tensor(x, device=leaf.device) / 2 for x in np.polynomial.legendre.leggauss(max(steps, 1))
    )
    positions = (nodes + 0.5).to(start.dtype).view(-1, *[1] * (leaf.ndim - 1))
    gradient = _mean_gradient(
        explanation,
        lambda step, rows: torch.lerp(start[rows], at_least_float32(leaf[rows]), positions[step]),
        weights[: max(steps, 0)],
        at_once,
    )
    return input_maps(explanation.recording, (at_least_float32(leaf) - start) * gradient)


@method(class_specific=True, signed=False, reaches_input=True, source="Smilkov et al. 2017")
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
    leaf = explanation.recording.tape.leaf
    assert leaf is not None
    return leaf if explanation.create_graph else leaf.detach()


def _mean_gradient(
    explanation: Explanation,
    point: Callable[[Tensor, Tensor], Tensor],
    weights: Float[Tensor, " copies"],
    at_once: int,
) -> Float[Tensor, "batch ..."]:
    """Weighted sum of the gradients at `point(copies, rows)`, several points and samples per forward pass."""
    leaf = _leaf(explanation)
    total = torch.zeros_like(at_least_float32(leaf))
    for copy, rows in in_parts(len(leaf), len(weights), at_once, leaf.device):
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
    own = content.cpu()

    def draw(copy: Int[Tensor, " rows"], rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows ..."]:
        unit = torch.zeros(len(rows), *leaf.shape[1:], dtype=leaf.dtype)
        for i, (number, row) in enumerate(zip(copy.tolist(), rows.tolist(), strict=True)):
            generator = torch.Generator().manual_seed(seeds[row] + number)
            count = int(own[row].sum())
            unit[i][own[row]] = torch.randn(count, generator=generator, dtype=leaf.dtype)
        return unit.to(leaf.device) * scale[rows]

    return draw
