"""Interventions on the samples of every candidate, shared by all processes."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

from lrptrain.findings import Candidate, Effect, ExplainedSample
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects, strategy_of
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.gathering import GatheredInputs
from lrptrain.relevance.preserve import unwrap
from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.processes import gather


def intervene(
    evaluator: Evaluator,
    inputs: GatheredInputs,
    explained: Sequence[ExplainedSample],
    candidates: Sequence[Candidate],
    config: InterventionConfig,
    on_failure: Callable[[str], None],
    power: float = 1.0,
    kept: KeptChanges | None = None,
) -> list[Effect | str]:
    """Return what an intervention did to the samples of every candidate, or why it could not be made.

    Every process takes part, with the same candidates. A region that several candidates share is changed once, in all
    samples that any of them needs.

    Args:
        evaluator: The model, in evaluation mode.
        inputs: All samples with their inputs.
        explained: The same samples with their predictions, in the same order.
        candidates: What to test.
        config: How to intervene.
        on_failure: Called in every process with what failed in any of them; samples that do not allow an intervention
            are no failure.
        power: What sharpens the probabilities; see `lrptrain.intervention.confidence`.
        kept: Keeps what this process makes of the samples that fall furthest.
    """
    by_region: dict[Region, Effect | str] = {}
    # `dict.fromkeys`, not `set`: strings have another hash in every process, so that sets differ in order, and
    # processes that gather for different regions would mix up their results.
    for region in dict.fromkeys(candidate.region for candidate in candidates):
        rows = np.unique(np.concatenate([each.rows for each in candidates if each.region == region]))
        by_region[region] = _effect_on(region, rows, evaluator, inputs, explained, config, on_failure, power, kept)
    return [_select(by_region[candidate.region], candidate.rows) for candidate in candidates]


def _effect_on(
    region: Region,
    rows: Int[np.ndarray, " n"],
    evaluator: Evaluator,
    inputs: GatheredInputs,
    explained: Sequence[ExplainedSample],
    config: InterventionConfig,
    on_failure: Callable[[str], None],
    power: float,
    kept: KeptChanges | None,
) -> Effect | str:
    """Change one region in the samples `rows`, in all processes together; a failure in one is a failure in all.

    Returns:
        The effect on all samples, nan where a sample was not needed; or why there is none.
    """
    local_rows = [row for row in inputs.local_rows if row in set(rows.tolist())]
    local_effects = (np.empty(0), np.empty(0))
    refused = ""
    failed = ""
    try:
        local_effects = effects(
            unwrap(evaluator.model),
            inputs.samples,
            rows=rows,
            computed_rows=local_rows,
            region=region,
            probabilities=np.stack([each.probabilities for each in explained]),
            grid=explained[rows[0]].grid,
            config=config,
            device=evaluator.device,
            forward_context=evaluator.forward_context,
            power=power,
            kept=kept,
        )
    except ValueError as refusal:  # these samples do not allow it: the message is for the user
        refused = str(refusal)
    except Exception as failure:
        failed = f"the intervention failed: {describe_error(failure)}"
    # Also after a failure: a process that skipped this would let the others wait for ever.
    parts = gather((local_rows, local_effects, refused, failed))
    first_failure = next((why for *_, why in parts if why), "")
    if first_failure:
        on_failure(first_failure)
        return first_failure
    first_refusal = next((why for *_, why, _ in parts if why), "")
    if first_refusal:
        return first_refusal
    # [samples]; each process fills the rows that it computed, those nobody needed stay nan.
    change = np.full(len(explained), np.nan)
    control = np.full(len(explained), np.nan)
    for part_rows, (part_change, part_control), _, _ in parts:
        change[part_rows] = part_change
        control[part_rows] = part_control
    return Effect(change, control, strategy_of(region, explained[rows[0]].grid, config))


def _select(effect: Effect | str, rows: Int[np.ndarray, " n"]) -> Effect | str:
    return effect if isinstance(effect, str) else Effect(effect.change[rows], effect.control[rows], effect.strategy)
