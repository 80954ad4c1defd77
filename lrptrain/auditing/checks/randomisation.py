"""Does a map depend on what the model has learnt? The cascading randomisation of Adebayo et al. 2018."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.auditing.base import AuditTest, Check, Column, register
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.score import Score
from lrptrain.auditing.store import Values, to_list
from lrptrain.metrics import rank_correlation
from lrptrain.relevance import Relevance, attribute, record
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes.recording import Target

CHANGED_BELOW = 0.5
"""A map has changed with the weights if its mean absolute rank correlation with the original lies below this: less than
a quarter of the ranks' variance is then left."""
UNCHANGED_ABOVE = 0.9
"""Above this, the map is about the same for a model that knows nothing: it says nothing about this model."""


@register
class RandomisationTest(AuditTest):
    """Randomise the model's weights from the logits downwards: does a method's map change?"""

    name = "randomisation"
    order = 40
    decides_verdict = True
    columns = (Column("lost weights", values="left", higher_is_better=False),)
    settings = ("stages",)

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return what is left of the maps.

        `left`: rank correlation of the absolute maps with those of randomised weights, per sample. `by_stage`: its
        means in the `stages`.
        """
        settings = context.settings
        checks = [
            randomisation_check(context.model, batch.inputs, batch.target, unit, settings.stages, settings.seed)
            for batch in context.batches
        ]
        left = torch.cat([each for _, each in checks], 1)  # [stages, samples]
        return {"left": to_list(left[-1]), "by_stage": to_list(left.nanmean(1)), "stages": checks[0][0]}

    def check(self, score: Score) -> Check:
        """Pass where the map changes; decide where it stays about the same."""
        passed = score.value < CHANGED_BELOW
        ignores_weights = score.value > UNCHANGED_ABOVE
        verb = "changes" if passed else "does not change" if ignores_weights else "hardly changes"
        reason = f"it {verb} when the weights are randomised: rank correlation {score}"
        return Check(passed, reason, decisive=ignores_weights)


def randomisation_check(
    model: nn.Module,
    inputs: Tensor | Mapping[str, Tensor],
    target: Target,
    method: str,
    stages: int,
    seed: int = 0,
) -> tuple[list[str], Float[Tensor, "stages batch"]]:
    """Randomise the model's weights, from the logits downwards, and see whether the map changes.

    Adebayo et al. 2018, "Sanity checks for saliency maps", section 3.1. The correlation should fall: a map that stays
    the same says nothing about what the model has learnt. The method `random`, which ignores the model, stays at 1.

    A copy is randomised, in the reverse of the order in which modules ran, in `stages` groups. A parameter is redrawn
    from a normal distribution with its own mean and standard deviation, so that activations keep their scale.
    (Constant parameters, such as a bias of zeros, stay; so do buffers.)

    Returns:
        Per stage the lowest module that was randomised (all above it were, too), and Spearman's rank correlation of
        the absolute maps with the original ones; nan where a map is constant.
    """
    if stages < 1:
        raise ValueError(f"stages must be positive, got {stages}")
    randomised = copy.deepcopy(unwrap(model))
    with _run_order(randomised) as started:
        recording = record(randomised, inputs)
    original = recording.attribute(target, method)
    del recording  # it holds the tensors of the intact model
    # Stages are cascading: each keeps what the earlier ones randomised.
    groups = _split_evenly(_from_the_logits_down(randomised, started), stages)
    usable = _not_padding(original, inputs)
    generator = torch.Generator().manual_seed(seed)
    redrawn: set[Tensor] = set()
    before = original.scores.detach().abs()
    left = []
    for group in groups:
        for name in group:
            _redraw(randomised.get_submodule(name), generator, redrawn)
        after = attribute(randomised, inputs, original.target, original.method).scores.detach()
        left.append(rank_correlation(before, after.abs(), usable))
    return [group[-1] or "(model)" for group in groups], torch.stack(left)


@contextmanager
def _run_order(model: nn.Module) -> Iterator[dict[str, int]]:
    """Note when every module that runs in this context (last) started, by its name."""
    started: dict[str, int] = {}
    clock = count()

    def note(name: str, *_: object) -> None:
        started[name] = next(clock)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(partial(note, name)))
        yield started


def _from_the_logits_down(model: nn.Module, started: Mapping[str, int]) -> list[str]:
    """Return the names of modules that own parameters, the last first; one never called counts with its parent."""

    def start_time(name: str) -> int:
        while name not in started:
            name = name.rpartition(".")[0]
        return started[name]

    names = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    if not names:
        raise ValueError("the model has no parameters that could be randomised")
    return sorted(names, key=start_time, reverse=True)


def _split_evenly(names: list[str], most: int) -> list[list[str]]:
    """Divide names into at most `most` consecutive groups of about the same length, none of them empty."""
    groups = min(most, len(names))
    # 5 names in 2 groups: the edges 0, 2, 5.
    edges = [round(i * len(names) / groups) for i in range(groups + 1)]
    return [names[low:high] for low, high in pairwise(edges)]


@torch.no_grad()
def _redraw(module: nn.Module, generator: torch.Generator, redrawn: set[Tensor]) -> None:
    """Redraw the module's own parameters, unless a module above shares them and they were redrawn with it."""
    for parameter in module.parameters(recurse=False):
        if parameter in redrawn or not parameter.is_floating_point():
            continue
        redrawn.add(parameter)
        # Drawn on the CPU, so that the values do not depend on the device.
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.copy_(parameter.mean() + parameter.std(correction=0) * noise)


def _not_padding(relevance: Relevance, inputs: Tensor | Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return all tokens but padding."""
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    return torch.ones_like(relevance.scores, dtype=torch.bool) if mask is None else mask != 0
