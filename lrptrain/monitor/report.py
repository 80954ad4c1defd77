"""The record of an epoch, from what was scored in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lrptrain.batch import Sample
from lrptrain.findings import Effect, Finding, judge, merge_findings, worst_severity
from lrptrain.findings.finding import RELIANCE
from lrptrain.loggers import EpochRecord
from lrptrain.monitor import drawing, summary
from lrptrain.monitor.evaluate import Explainer, Scored
from lrptrain.monitor.suspects import Suspect, Terms, suspects
from lrptrain.trainers.discover import find_class_names, find_tokens


@dataclass(frozen=True)
class Reporter:
    """How to tell what was scored.

    Attributes:
        bound: Of a finding.
        confidence: Of intervals and findings.
        class_names: In the order of the logits; else those of an owner, else numbers.
        tokenizer: A tokenizer, its name or folder; else that of an owner.
        mean: Per channel, as images were normalised with.
        std: Per channel.
        min_effect: The least mean change of a probability that confirms a finding.
        region_names: Of the named regions.
    """

    bound: float | str = "chance"
    confidence: float = 0.95
    class_names: Sequence[str] | None = None
    tokenizer: Any = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    min_effect: float = 0.05
    region_names: Sequence[str] = ()

    def suspects(
        self,
        scored: Sequence[Scored],
        owners: Sequence[Any],
        epoch: int = 0,
        step: int = 0,
        samples: Sequence[Sample] | None = None,
    ) -> list[Suspect]:
        """What the maps make one suspect.

        Args:
            scored: The whole sample.
            owners: Of class names and a tokenizer, the datamodule and the module.
            epoch: Number of the epoch.
            step: Global step.
            samples: The inputs of `scored`, if there will be an intervention.

        Raises:
            ValueError: If there are no samples, or class names do not fit.
        """
        names = self._names(scored, owners)
        tokens = find_tokens(self.tokenizer, *owners)
        terms = Terms(names, tokens, self.bound, self.confidence, epoch, step, self.region_names)
        return suspects(scored, terms, samples)

    def record(
        self,
        scored: Sequence[Scored],
        owners: Sequence[Any],
        found: Sequence[Suspect] = (),
        effects: Sequence[Effect | str] | None = None,
        standing: Sequence[Finding] = (),
        epoch: int = 0,
        step: int = 0,
    ) -> EpochRecord:
        """Say what the scores mean.

        Args:
            scored: The whole sample.
            owners: Of class names and a tokenizer, the datamodule and the module.
            found: What is suspected.
            effects: Of an intervention on each suspect; None if there was none.
            standing: The findings of the evaluation before.
            epoch: Number of the epoch.
            step: Global step.

        Raises:
            ValueError: If there are no samples, or class names do not fit.
        """
        names = self._names(scored, owners)
        flagged = [suspect.finding for suspect in found]
        if effects is not None:
            judged = judge(flagged, effects, self.min_effect, self.confidence)
            flagged = [finding for finding in judged if finding.kind != RELIANCE or finding.state == "confirmed"]
        findings, new = merge_findings(standing, flagged)
        return EpochRecord(
            epoch=epoch,
            step=step,
            scalars=summary.scalars(scored, names) | _reliance(found, effects) | _counts(findings),
            samples=summary.table(scored, names),
            findings=findings,
            new_findings=new,
            class_names=names,
            metrics=summary.logged_metrics(),
        )

    def _names(self, scored: Sequence[Scored], owners: Sequence[Any]) -> list[str]:
        if not scored:
            raise ValueError("the validation set gave no samples")
        return find_class_names(self.class_names, owners, scored[0].classes)

    def drawn(
        self,
        record: EpochRecord,
        shown: Sequence[Scored],
        owners: Sequence[Any],
        scored: Sequence[Scored] = (),
        samples: Sequence[Sample] | None = None,
    ) -> EpochRecord:
        """The record with pictures or highlighted texts, and with the inputs of `samples`.

        Args:
            record: Without them.
            shown: What is drawn of the sample, with inputs and annotations.
            owners: As for `record`.
            scored: The whole sample.
            samples: The inputs of `scored`; None if there are only those of `shown`.
        """
        look = drawing.Look(record.class_names, find_tokens(self.tokenizer, *owners), self.mean, self.std)
        pairs = [(one.sample, one.grid) for one in shown]
        if shown and samples is not None:  # those shown first
            pairs += [(sample, one.grid) for sample, one in zip(samples, scored, strict=True)]
        return replace(
            record,
            pictures=drawing.pictures(shown, look),
            texts=drawing.highlights(shown, look),
            inputs=drawing.inputs(pairs, look),
        )


def settings(
    pl_module: Any, model: Any, explainer: Explainer, reporter: Reporter, names: Sequence[str]
) -> dict[str, Any]:
    """What was monitored, and how, for `run.json`."""
    return {
        "method": explainer.method,
        "method_options": explainer.options,
        "module": type(pl_module).__name__,
        "model": type(model).__name__,
        "bound": reporter.bound,
        "confidence": reporter.confidence,
        "class_names": names,
        "metrics": [metric.to_dict() for metric in summary.logged_metrics()],
    }


def _counts(findings: Sequence[Finding]) -> dict[str, float]:
    standing = [finding for finding in findings if finding.state != "refuted"]
    return {
        "relevance/findings": float(len(standing)),
        "relevance/findings/confirmed": float(sum(finding.state == "confirmed" for finding in standing)),
        "relevance/severity": worst_severity(findings),
    }


def _reliance(found: Sequence[Suspect], effects: Sequence[Effect | str] | None) -> dict[str, float]:
    """Mean change of the prediction when what lies outside the annotation is changed, and of its control."""
    for suspect, effect in zip(found, effects or (), strict=effects is not None):
        if suspect.region.kind == "outside" and isinstance(effect, Effect) and not np.isnan(effect.change).all():
            change, control = float(np.nanmean(effect.change)), float(np.nanmean(effect.control))
            return {"relevance/reliance": change, "relevance/reliance/control": control}
    return {}
