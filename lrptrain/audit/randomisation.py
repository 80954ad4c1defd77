"""Does a map depend on what the model has learnt? The cascading randomisation of Adebayo et al. 2018."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.metrics import rank_correlation
from lrptrain.metrics.interval import mean_with_interval, moments_by_row
from lrptrain.relevance import Relevance, attribute, record
from lrptrain.relevance.preserve import unwrap


@dataclass(frozen=True)
class RandomisationCheck:
    """How like the original map stays while the weights are lost, from the logits downwards.

    Attributes:
        stages: The lowest module that had lost its weights, per stage; all above it had, too.
        correlation: Spearman's rank correlation of the signed maps, in [-1, 1]; nan where a map is constant.
        absolute: That of the maps' absolute values.
        target: The explained class, the same in all stages.
    """

    stages: tuple[str, ...]
    correlation: Float[Tensor, "stages batch"]
    absolute: Float[Tensor, "stages batch"]
    target: Int[Tensor, " batch"]

    def means(self, absolute: bool = False) -> dict[str, Float[Tensor, " stages"]]:
        """Per stage the mean over samples as `value`, and its 95 % t interval as `low` and `high`."""
        values = self.absolute if absolute else self.correlation
        row = torch.arange(len(values), device=values.device).repeat_interleave(values.shape[1])
        return mean_with_interval(moments_by_row(values.flatten(), row, len(values)))


def randomisation_check(
    model: nn.Module,
    inputs: Tensor | Mapping[str, Tensor],
    target: int | Int[Tensor, " batch"] | None = None,
    method: str = "transformer_attribution",
    *,
    stages: int = 8,
    seed: int = 0,
    **options: Any,
) -> RandomisationCheck:
    """Take the model's weights away, from the logits downwards, and see whether the map changes.

    Adebayo et al. 2018, "Sanity checks for saliency maps", section 3.1. The correlation should fall: a map that stays
    says nothing of what the model has learnt. A map of `random` scores, which ignores the model, stays at 1.

    All works on a copy. Modules with parameters are taken in the reverse of the order in which they ran, in `stages`
    parts of about as many modules each. A parameter is redrawn from a normal distribution with its own mean and
    standard deviation: so activations keep their scale, in models of any library, of which the initialisers are not
    known here. (What is constant, as a bias of zeros, stays; so do buffers.)

    Args:
        model: As for `lrptrain.attribute`; it is not changed.
        inputs: As for `lrptrain.attribute`.
        target: The class to explain; None for the one that the intact model predicts.
        method: One of `lrptrain.methods()`.
        stages: At most so many maps are made, fewer if the model has fewer modules.
        seed: Of the redrawn weights.
        **options: Of the method.

    Raises:
        ValueError: If `stages` is not positive, or the model has no parameters; and whatever `lrptrain.attribute`
            raises.
    """
    if stages < 1:
        raise ValueError(f"stages must be positive, got {stages}")
    victim = copy.deepcopy(unwrap(model))
    with _run_order(victim) as started:
        recorded = record(victim, inputs)
    original = recorded.attribute(target, method, **options)
    del recorded  # it holds the tensors of the intact model
    parts = _parts(_from_the_logits_down(victim, started), stages)
    usable = _usable(original, inputs)
    generator = torch.Generator().manual_seed(seed)
    lost: set[Tensor] = set()
    columns = []
    for part in parts:
        for name in part:
            _redraw(victim.get_submodule(name), generator, lost)
        now = attribute(victim, inputs, original.target, method, **options)
        before, after = original.scores.detach(), now.scores.detach()
        columns.append([rank_correlation(before, after, usable), rank_correlation(before.abs(), after.abs(), usable)])
    signed, absolute = (torch.stack(column) for column in zip(*columns, strict=True))
    return RandomisationCheck(tuple(part[-1] or "(model)" for part in parts), signed, absolute, original.target)


@contextmanager
def _run_order(model: nn.Module) -> Iterator[dict[str, int]]:
    """For every module that runs in this context, by name, when it (last) started."""
    started: dict[str, int] = {}
    clock = count()

    def note(name: str) -> Callable[..., None]:
        def at_start(*_: object) -> None:
            started[name] = next(clock)

        return at_start

    handles = [module.register_forward_pre_hook(note(name)) for name, module in model.named_modules()]
    try:
        yield started
    finally:
        for handle in handles:
            handle.remove()


def _from_the_logits_down(model: nn.Module, started: Mapping[str, int]) -> list[str]:
    """Names of the modules with parameters of their own, the last to start first.

    One that was never called (the output projection in `nn.MultiheadAttention` is only read) counts with the module
    around it.
    """

    def time(name: str) -> int:
        while name not in started:
            name = name.rpartition(".")[0]
        return started[name]

    owners = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    if not owners:
        raise ValueError("the model has no parameters that could be randomised")
    return sorted(owners, key=time, reverse=True)


def _parts(names: list[str], most: int) -> list[list[str]]:
    """Divide into at most so many consecutive parts of about the same length, none empty."""
    parts = min(most, len(names))
    edges = [round(i * len(names) / parts) for i in range(parts + 1)]
    return [names[low:high] for low, high in pairwise(edges)]


@torch.no_grad()
def _redraw(module: nn.Module, generator: torch.Generator, lost: set[Tensor]) -> None:
    """Give the module's own parameters new values; those shared with a module above are new already."""
    for parameter in module.parameters(recurse=False):
        if parameter in lost or not parameter.is_floating_point():
            continue
        lost.add(parameter)
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.copy_(parameter.mean() + parameter.std(correction=0) * noise)


def _usable(relevance: Relevance, inputs: Tensor | Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """All tokens but padding."""
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    return torch.ones_like(relevance.scores, dtype=torch.bool) if mask is None else mask != 0
