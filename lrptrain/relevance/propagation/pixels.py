"""The layers that read pixels: which they are, and between which bounds their input lies."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.propagation.composite import InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.functions import DENSE, PRODUCTS
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import run
from lrptrain.relevance.tape.sample_axes import join_samples, split_samples

Array = Float[Tensor, "..."]
# A number, or one per channel; None for what the input itself has.
Bound = float | Sequence[float] | Tensor | None
# torch.amin or torch.amax: the smallest or largest numbers along axes.
Extreme = Callable[[Tensor, list[int], bool], Tensor]


def reads_pixels(propagator: Propagator, node: Node) -> bool:
    """Tell whether an operation is a layer on the patches of an image.

    A convolution is one, and so is a linear layer on patches that were cut out before; one on all pixels of an image at
    once has no patches, and is a layer like any other.
    """
    if node.name not in DENSE | PRODUCTS or len(node.inputs) != 1:
        return False
    patches = node.name.startswith("conv") or len(node.inputs[0].shape) > 2
    return patches and node.inputs[0] in propagator.pixels[1]


def with_first_rule(rule: RuleFunction, first: RuleFunction) -> RuleFunction:
    """Return a rule for weighted operations that gives those that read pixels a rule of their own."""

    def chosen(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        return (first if reads_pixels(propagator, node) else rule)(propagator, node, relevance)

    return chosen


def bound(propagator: Propagator, node: Node, value: Value, given: Bound, extreme: Extreme) -> Array:
    """A bound of a layer's input that broadcasts to it; None stands for the extremes of every sample and channel.

    Pixels that were moved or scaled before the layer reads them have bounds that are moved and scaled alike. A linear
    layer that does not read pixels has no channels, and takes the extremes of every sample.
    """
    nodes, copies = propagator.pixels
    if value not in copies:
        convolution = node.name.startswith("conv")
        axis = 1 + len(value.shape) - node.argument(1, "weight").ndim if convolution else None
        return _bound(propagator, value, given, extreme, axis)
    root = propagator.root
    axis = 1 if len(root.shape) == 4 or root.shape[1] <= root.shape[2] else 2  # videos: frames first, or channels
    of_image = _bound(propagator, root, given, extreme, axis).expand(root.shape)
    # A factor below 0 turns the upper bound into the lower one: both are asked for, and the caller sorts them.
    return run(nodes, {root: of_image})[value] if value is not root else of_image


def bounds(propagator: Propagator, node: Node, value: Value, low: Bound, high: Bound) -> tuple[Array, Array]:
    """Return the lower and the upper bound of a layer's input; see `bound`."""
    ends = (bound(propagator, node, value, low, torch.amin), bound(propagator, node, value, high, torch.amax))
    return torch.minimum(*ends), torch.maximum(*ends)


def _bound(propagator: Propagator, value: Value, given: Bound, extreme: Extreme, channels: int | None) -> Array:
    x = value.tensor
    if given is None:
        return _extremes(propagator, value, extreme, channels)
    numbers = torch.as_tensor(given, dtype=x.dtype, device=x.device)
    if numbers.ndim != 1 or len(numbers) == 1:
        return numbers
    axis = x.ndim - 1 if channels is None else channels
    if len(numbers) != x.shape[axis]:
        raise ValueError(f"{len(numbers)} bounds were given for an input of {x.shape[axis]} channels")
    return numbers.view([-1 if i == axis else 1 for i in range(x.ndim)])


def _extremes(propagator: Propagator, value: Value, extreme: Extreme, channels: int | None) -> Array:
    at = propagator.axis(value)
    per_sample = split_samples(value.tensor, at, propagator.samples)  # [samples, outer, inner, ...]
    own_axes = {0} if channels is None else {0, 2 + channels + (channels < at.axis)}
    axes = [axis for axis in range(per_sample.ndim) if axis not in own_axes]
    extremes = extreme(per_sample, axes, True)
    return join_samples(extremes.expand_as(per_sample), at, value.shape)
