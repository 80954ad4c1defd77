"""Interventions on the samples of every candidate, shared by all processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from lrptrain.findings import Candidate, Effect, ExplainedSample
from lrptrain.findings.doubt import is_in_doubt
from lrptrain.findings.first_look import first_look, is_settled
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects, is_by_donors, strategy_of
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.gathering import GatheredInputs
from lrptrain.relevance.preserve import unwrap
from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.processes import gather

FURTHER_DRAWS = 2
"""Donors are drawn so many times again where the first draw leaves in doubt whether an effect is large enough."""
SEEDS_APART = 100
"""Draws have seeds so far apart: of a draw, several parts have the next seeds."""


def intervene(
    evaluator: Evaluator,
    inputs: GatheredInputs,
    explained: Sequence[ExplainedSample],
    candidates: Sequence[Candidate],
    config: InterventionConfig,
    on_failure: Callable[[str], None],
    *,
    min_effect: float,
    confidence: float,
    power: float = 1.0,
    kept: KeptChanges | None = None,
) -> list[Effect | str]:
    """Return what an intervention did to the samples of every candidate, or why it could not be made.

    Every process takes part, with the same candidates. A region that several candidates share is changed once, in all
    samples that any of them needs. Candidates that a first look settles are not tested on more samples; see
    `lrptrain.findings.first_look`. Where a swap leaves in doubt whether its effect is large enough, donors are drawn
    again, and a sample counts with its mean over the draws: else the verdict would lie within the luck of one draw.

    Args:
        evaluator: The model, in evaluation mode.
        inputs: All samples with their inputs.
        explained: The same samples with their predictions, in the same order.
        candidates: What to test.
        config: How to intervene.
        on_failure: Called in every process with what failed in any of them; samples that do not allow an intervention
            are no failure.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of verdicts, in (0, 1).
        power: What sharpens the probabilities; see `lrptrain.monitor.confidence`.
        kept: Keeps what this process makes of the samples that fall furthest.

    Returns:
        For each candidate the effect on its samples, nan where one was not tested; or why there is none.
    """
    intervention = _Intervention(evaluator, inputs, explained, config, on_failure, power, kept)
    results: dict[int, Effect | str] = {}
    # Each place counts twice, as verdicts do: once for its removal, once for its exchange.
    tests = len(candidates) + sum(candidate.region.is_place for candidate in candidates)
    # `dict.fromkeys`, not `set`: strings have another hash in every process, so that sets differ in order, and
    # processes that gather for different regions would mix up their results.
    for region in dict.fromkeys(candidate.region for candidate in candidates):
        members = {i: each for i, each in enumerate(candidates) if each.region == region}
        results |= _effects_on(region, members, intervention, tests, min_effect, confidence)
    return [results[i] for i in range(len(candidates))]


def _effects_on(
    region: Region,
    candidates: dict[int, Candidate],
    intervention: "_Intervention",
    tests: int,
    min_effect: float,
    confidence: float,
) -> dict[int, Effect | str]:
    """Return the effect on the samples of every candidate for one region, or why there is none.

    Args:
        region: What is changed.
        candidates: The candidates, by a number of theirs.
        intervention: Changes the region.
        tests: The number of tests of the evaluation, over which verdicts are corrected.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of verdicts, in (0, 1).
    """
    rows = np.unique(np.concatenate([each.rows for each in candidates.values()]))
    if not len(rows):  # such as a mark where no judge is read as another class: no failure, and nothing to change
        return dict.fromkeys(candidates, Effect(np.empty(0), np.empty(0)))
    early = first_look(rows, len(intervention.explained), intervention.config.seed, region)
    effect = intervention.effect_on(region, rows, early)
    if isinstance(effect, str):
        return dict.fromkeys(candidates, effect)

    def settles(candidate: Candidate) -> bool:
        seen = candidate.rows[np.isin(candidate.rows, early)]
        return is_settled(
            candidate.finding,
            effect.change[seen] - effect.control[seen],
            region,
            rows=len(candidate.rows),
            tests=tests,
            min_effect=min_effect,
            confidence=confidence,
        )

    settled = {i for i, each in candidates.items() if len(early) < len(rows) and settles(each)}
    open_rows = [each.rows for i, each in candidates.items() if i not in settled]
    late = np.setdiff1d(np.concatenate(open_rows), early) if open_rows else np.empty(0, int)
    if len(late):
        rest = intervention.effect_on(region, rows, late)
        if isinstance(rest, str):
            return dict.fromkeys(candidates, rest)
        effect.change[late] = rest.change[late]
        effect.control[late] = rest.control[late]

    tested = np.union1d(early, late)
    in_doubt = [
        tested[np.isin(tested, each.rows)]
        for i, each in candidates.items()
        if i not in settled and _is_in_doubt(each, effect, region, tests, min_effect, confidence)
    ]
    final: Effect | str = effect
    if in_doubt:
        final = intervention.drawn_again(region, rows, np.unique(np.concatenate(in_doubt)), effect)
    if isinstance(final, str):
        return dict.fromkeys(candidates, final)
    change = final.change
    control = final.control

    def selected(i: int, candidate: Candidate) -> Effect:
        # A settled candidate shares some of the late samples with others: they are no random choice of its own, unless
        # they are all.
        is_part = i in settled and not np.isin(candidate.rows, tested).all()
        unseen = np.isin(candidate.rows, late) & is_part
        return Effect(
            np.where(unseen, np.nan, change[candidate.rows]),
            np.where(unseen, np.nan, control[candidate.rows]),
            effect.strategy,
        )

    return {i: selected(i, each) for i, each in candidates.items()}


def _is_in_doubt(
    candidate: Candidate, effect: Effect, region: Region, tests: int, min_effect: float, confidence: float
) -> bool:
    """Return whether a draw of donors leaves open whether the effect on a candidate is large enough."""
    if not is_by_donors(effect.strategy):
        return False
    differences = effect.change[candidate.rows] - effect.control[candidate.rows]
    return is_in_doubt(
        candidate.finding, differences, region, tests=tests, min_effect=min_effect, confidence=confidence
    )


@dataclass(frozen=True)
class _Intervention:
    """Changes regions in samples, in all processes together; see `intervene`."""

    evaluator: Evaluator
    inputs: GatheredInputs
    explained: Sequence[ExplainedSample]
    config: InterventionConfig
    on_failure: Callable[[str], None]
    power: float
    kept: KeptChanges | None

    def drawn_again(
        self, region: Region, rows: Int[np.ndarray, " n"], tested: Int[np.ndarray, " m"], first: Effect
    ) -> Effect | str:
        """Return the effect with the mean over the first draw of donors and `FURTHER_DRAWS` more in some samples.

        Args:
            region: What is changed.
            rows: All samples of the region, which may give.
            tested: Those that are changed again.
            first: The effect under the first draw.

        Returns:
            The effect on all samples of the evaluation; or why a draw failed.
        """
        draws = [first]
        for number in range(1, FURTHER_DRAWS + 1):
            config = replace(self.config, seed=self.config.seed + SEEDS_APART * number)
            # The proofs are those of the first draw, which every sample has.
            effect = replace(self, config=config, kept=None).effect_on(region, rows, tested)
            if isinstance(effect, str):
                return effect
            draws.append(effect)
        change = first.change.copy()
        control = first.control.copy()
        change[tested] = np.mean([each.change[tested] for each in draws], axis=0)
        control[tested] = np.mean([each.control[tested] for each in draws], axis=0)
        return Effect(change, control, first.strategy)

    def effect_on(self, region: Region, rows: Int[np.ndarray, " n"], tested: Int[np.ndarray, " m"]) -> Effect | str:
        """Change one region in some samples; a failure in one process is a failure in all.

        Args:
            region: What is changed.
            rows: All samples of the region, which may give their surroundings.
            tested: Those of them that are changed now.

        Returns:
            The effect on all samples of the evaluation, nan where one was not changed; or why there is none.
        """
        wanted = set(tested.tolist())
        local_rows = [row for row in self.inputs.local_rows if row in wanted]
        local_effects = (np.empty(0), np.empty(0))
        refused = ""
        failed = ""
        try:
            local_effects = effects(
                unwrap(self.evaluator.model),
                self.inputs.samples,
                rows=rows,
                computed_rows=local_rows,
                region=region,
                probabilities=np.stack([each.probabilities for each in self.explained]),
                grid=self.explained[rows[0]].grid,
                config=self.config,
                device=self.evaluator.device,
                forward_context=self.evaluator.forward_context,
                power=self.power,
                kept=self.kept,
            )
        except ValueError as refusal:  # these samples do not allow it: the message is for the user
            refused = str(refusal)
        except Exception as failure:
            failed = f"the intervention failed: {describe_error(failure)}"
        # Also after a failure: a process that skipped this would let the others wait for ever.
        parts = gather((local_rows, local_effects, refused, failed))
        first_failure = next((why for *_, why in parts if why), "")
        if first_failure:
            self.on_failure(first_failure)
            return first_failure
        first_refusal = next((why for *_, why, _ in parts if why), "")
        if first_refusal:
            return first_refusal
        # [samples]; each process fills the rows that it computed, those nobody needed stay nan.
        change = np.full(len(self.explained), np.nan)
        control = np.full(len(self.explained), np.nan)
        for part_rows, (part_change, part_control), _, _ in parts:
            change[part_rows] = part_change
            control[part_rows] = part_control
        return Effect(change, control, strategy_of(region, self.explained[rows[0]].grid, self.config))
