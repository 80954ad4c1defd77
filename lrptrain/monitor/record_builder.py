"""The record of an evaluation: findings, scalars, tables and drawings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lrptrain.findings import (
    OVERALL,
    WORTH_SAYING,
    Candidate,
    DetectionConfig,
    Effect,
    Evaluation,
    ExplainedSample,
    Finding,
    can_confirm,
    carry_over,
    detect_candidates,
    fold,
    nearest_test,
    news_among,
    reach_verdicts,
    worst_severity,
)
from lrptrain.findings.detector import get_detector
from lrptrain.findings.facts import fold_places
from lrptrain.findings.finding import MAX_WORST_SAMPLES
from lrptrain.findings.suspicion import worth_saying
from lrptrain.loggers import EpochRecord
from lrptrain.loggers.local import PROOFS, evaluation_name
from lrptrain.monitor import drawing, summary
from lrptrain.monitor.excerpts import MOST_EXCERPTS, excerpt
from lrptrain.monitor.proving import CandidateOf, Kept, with_proofs
from lrptrain.trainers.naming import NameSources, class_names_or_numbers, find_tokenizer, find_tokens, has_tokenizer


@dataclass(frozen=True)
class RecordBuilder:
    """Turns what was explained into findings and the record of an evaluation.

    Attributes:
        bound: The share of the relevance, in (0, 1), that must lie on the annotation; "chance" for the annotated area.
        confidence: The level of intervals and findings, in (0, 1).
        class_names: The name of each class, in the order of the logits; None for those of the name sources.
        tokenizer: A tokenizer, its name or its folder; None for that of the name sources.
        mean: The mean of each channel with which images were normalised.
        std: The standard deviation of each channel with which images were normalised.
        min_effect: The least mean change of a probability that confirms a finding.
        region_names: The names of the regions of the masks.
    """

    bound: float | str = "chance"
    confidence: float = 0.95
    class_names: Sequence[str] | None = None
    tokenizer: Any = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    min_effect: float = 0.05
    region_names: Sequence[str] = ()

    def candidates(
        self,
        evaluation: Evaluation,
        sources: NameSources,
        on_failure: Callable[[str, Exception], None] | None = None,
    ) -> list[Candidate]:
        """Return what the maps make suspect.

        Args:
            evaluation: All explained samples.
            sources: Objects that may have class names and a tokenizer.
            on_failure: As for `detect_candidates`.

        Raises:
            ValueError: If there are no samples, or the class names do not fit.
        """
        config = DetectionConfig(
            class_names=self._names(evaluation, sources),
            name_tokens=find_tokens(self.tokenizer, sources),
            bound=self.bound,
            confidence=self.confidence,
            region_names=self.region_names,
            tokenizer=find_tokenizer(self.tokenizer, sources) if evaluation.medium == "text" else None,
        )
        return detect_candidates(evaluation, config, on_failure)

    def build(
        self,
        evaluation: Evaluation,
        sources: NameSources,
        candidates: Sequence[Candidate] = (),
        effects: Sequence[Effect | str] | None = None,
        previous: Sequence[Finding] = (),
        exchanges: Mapping[int, Effect | str] | None = None,
    ) -> EpochRecord:
        """Return the record of an evaluation, without drawings.

        Args:
            evaluation: All explained samples.
            sources: Objects that may have class names and a tokenizer.
            candidates: What the maps make suspect.
            effects: The effect of an intervention on each candidate; None if there was none.
            previous: The findings of the evaluation before.
            exchanges: The effect of exchanging the place of a candidate, by its index; see `reach_verdicts`.

        Raises:
            ValueError: If there are no samples, or the class names do not fit.
        """
        # Suspected findings first; an intervention confirms or refutes them, and the previous ones say which are news.
        names = self._names(evaluation, sources)
        findings = [candidate.finding for candidate in candidates]
        nearness: dict[str, float] = {}
        nearest = None
        decides = False
        if effects is not None:
            decides = can_confirm(findings, effects, self.confidence, exchanges)
            nearest = nearest_test(findings, effects, self.min_effect, self.confidence, exchanges)
            nearness = {"relevance/effect_ratio": nearest.ratio if nearest else 0.0 if decides else math.nan}
            verdicts = reach_verdicts(findings, effects, self.min_effect, self.confidence, exchanges)
            tested = [
                _with_worst_samples(finding, effect, candidate, evaluation)
                for finding, effect, candidate in zip(verdicts, effects, candidates, strict=True)
            ]
            findings = [each for each in tested if each.state == "confirmed" or _reported_unconfirmed(each)]
        findings = worth_saying(findings, evaluation, self.confidence)
        findings = [self._in_words(each, evaluation, sources) for each in findings]
        # After the verdicts: what is not reported now has no history when it appears later.
        facts = fold(carry_over(previous, findings))
        origin = candidate_of(candidates)
        facts = fold_places(facts, lambda fact: origin(fact).region, self.min_effect)
        scalars = summary.scalars(evaluation.samples, names) | _reliance(evaluation, candidates, effects) | nearness
        return EpochRecord(
            epoch=evaluation.epoch,
            step=evaluation.step,
            scalars=scalars | _counts(facts, decides),
            samples=summary.table(evaluation.samples, names),
            findings=facts,
            new_findings=news_among(previous, facts),
            class_names=names,
            metrics=summary.logged_metrics(),
            hints=str(nearest) if nearest and nearest.ratio >= WORTH_SAYING else "",
        )

    def draw(
        self,
        record: EpochRecord,
        displayed: Sequence[ExplainedSample],
        sources: NameSources,
        evaluation: Evaluation | None = None,
    ) -> EpochRecord:
        """Return the record with pictures or highlighted texts, and with the inputs of its samples.

        Args:
            record: The record without drawings.
            displayed: The samples to draw, with inputs and annotations.
            sources: As for `build`.
            evaluation: The whole sample, to keep the inputs of all samples; None for those of `displayed` alone.
        """
        name_tokens = find_tokens(self.tokenizer, sources)
        options = drawing.DisplayOptions(record.class_names, name_tokens, self.mean, self.std)
        with_inputs = [(each.sample, each.grid) for each in displayed]  # first, in case the record's budget ends
        if displayed and evaluation is not None and evaluation.inputs is not None:
            grids = (each.grid for each in evaluation.samples)
            with_inputs += zip(evaluation.inputs, grids, strict=True)
        return replace(
            record,
            pictures=drawing.pictures(displayed, options),
            texts=drawing.highlights(displayed, options),
            inputs=drawing.inputs(with_inputs, options),
        )

    def prove(
        self,
        record: EpochRecord,
        evaluation: Evaluation,
        candidates: Sequence[Candidate],
        changes: Kept,
        sources: NameSources,
    ) -> EpochRecord:
        """Return the record with the proofs of what is confirmed.

        Args:
            record: The record with its facts.
            evaluation: All explained samples, with inputs.
            candidates: What was tested.
            changes: What the intervention made of the samples that are shown, of all processes.
            sources: As for `build`.
        """
        if not changes or evaluation.inputs is None:
            return record
        options = drawing.DisplayOptions(record.class_names, find_tokens(self.tokenizer, sources), self.mean, self.std)
        folder = f"{PROOFS}/{evaluation_name(record.epoch, record.step)}"
        findings = with_proofs(
            record.findings, candidate_of(candidates), changes, evaluation.inputs, evaluation.samples, options, folder
        )
        by_key = {(each.identity, each.where): each for each in findings}
        return replace(
            record, findings=findings, new_findings=[by_key[each.identity, each.where] for each in record.new_findings]
        )

    def _in_words(self, finding: Finding, evaluation: Evaluation, sources: NameSources) -> Finding:
        """Return the finding with whether its samples are annotated, and the words of the texts that show it best."""
        finding = replace(finding, annotated=any(not np.isnan(each.chance) for each in evaluation.samples))
        if evaluation.medium != "text":
            return finding
        by_id = {each.sample.sample_id: each for each in evaluation.samples}
        name_tokens = find_tokens(self.tokenizer, sources)
        texts = [by_id[sample_id] for sample_id in finding.worst_samples[:MOST_EXCERPTS] if sample_id in by_id]
        return replace(finding, excerpts=tuple(excerpt(each, name_tokens) for each in texts))

    def names_tokens(self, sources: NameSources) -> bool:
        """Return whether a tokenizer was found, so that tokens have other names than their ids."""
        return has_tokenizer(self.tokenizer, sources)

    def _names(self, evaluation: Evaluation, sources: NameSources) -> list[str]:
        if not evaluation.samples:
            raise ValueError("the validation set gave no samples")
        return class_names_or_numbers(self.class_names, sources, evaluation.samples[0].num_logits)


def candidate_of(candidates: Sequence[Candidate]) -> CandidateOf:
    """Return a function that says from which candidate a finding has come, its region as the verdict changed it."""
    by_key = {(each.finding.identity, each.finding.where): each for each in candidates}

    def tested(finding: Finding) -> Candidate:
        candidate = by_key[finding.identity, finding.where]
        exchanged = finding.strategy == "swap" and candidate.region.is_place
        return candidate._replace(region=candidate.region.in_exchange()) if exchanged else candidate

    return tested


def untested_lines(candidates: Sequence[Candidate], effects: Sequence[Effect | str]) -> list[str]:
    """Return what the user is to know of reliances that no map suspects and that could not be tested.

    A finding that is reported says so itself. These would else go unmentioned, as if there were nothing. What was not
    tested for the same reason is one line.

    Args:
        candidates: What was to be tested.
        effects: The effects, or why there is none; empty without an intervention.
    """
    untested: dict[str, list[str]] = {}
    for candidate, effect in zip(candidates, effects, strict=bool(effects)):
        if isinstance(effect, str) and not _reported_unconfirmed(candidate.finding):
            untested.setdefault(effect, []).append(_lower_first(candidate.finding.title))
    return [
        f"not tested whether {', or whether '.join(dict.fromkeys(titles))}: {reason}"
        for reason, titles in untested.items()
    ]


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _reported_unconfirmed(finding: Finding) -> bool:
    return get_detector(finding.kind).reported_unconfirmed


def _counts(findings: Sequence[Finding], decides: bool) -> dict[str, float]:
    """Return the scalars on the facts that stand; nan where nothing could be confirmed.

    Args:
        findings: The facts.
        decides: Whether a test could have confirmed any.
    """
    standing = [finding for finding in findings if finding.stands]
    confirmed = sum(finding.state == "confirmed" for finding in standing)
    is_known = decides or confirmed > 0
    return {
        "relevance/findings": float(len(standing)),
        "relevance/findings_confirmed": float(confirmed) if is_known else math.nan,
        "relevance/severity": worst_severity(findings) if is_known else math.nan,
    }


# What `summary.FINDING_METRICS` describes: the region that is changed, and the key of what that does.
_RELIANCES = (("outside", "reliance"), ("statistics", "statistics_reliance"))


def _reliance(
    evaluation: Evaluation, candidates: Sequence[Candidate], effects: Sequence[Effect | str] | None
) -> dict[str, float]:
    """Return how far predictions move when what needs no suspicion is changed, and under the control, if this was done.

    That is all but the annotation, and the statistics of images. The numbers are means over all samples that were
    changed, of the candidate for the first target, whichever kind it is of.
    """
    # The library's detectors make one such candidate of a region at most: a scope is either "focus" or "reliance
    # outside the annotation", and both have the region "outside". A named region or a class is another number.
    scalars: dict[str, float] = {}
    keys = dict(_RELIANCES)
    for candidate, effect in zip(candidates, effects or (), strict=effects is not None):
        all_samples = candidate.finding.scope == OVERALL and candidate.finding.target == evaluation.targets[0]
        key = keys.get(candidate.region.kind)
        if key is None or not all_samples or isinstance(effect, str) or np.isnan(effect.change).all():
            continue
        scalars.setdefault(f"relevance/{key}", float(np.nanmean(effect.change)))
        scalars.setdefault(f"relevance/{key}_control", float(np.nanmean(effect.control)))
    return scalars


def _with_worst_samples(
    finding: Finding, effect: Effect | str, candidate: Candidate, evaluation: Evaluation
) -> Finding:
    """Return a finding that no map shows with the samples whose answers fell furthest beyond the control."""
    if finding.worst_samples or isinstance(effect, str):
        return finding
    falls = effect.change - effect.control
    order = [i for i in np.argsort(-falls, kind="stable") if not np.isnan(falls[i])]
    rows = candidate.rows[order[:MAX_WORST_SAMPLES]]
    return replace(finding, worst_samples=tuple(evaluation.samples[row].sample.sample_id for row in rows))
