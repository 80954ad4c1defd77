"""The record of an epoch, from what was scored in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lrptrain.findings import Finding, merge_findings
from lrptrain.loggers import EpochRecord
from lrptrain.monitoring import drawing, summary
from lrptrain.monitoring.discover import find_class_names, find_tokens
from lrptrain.monitoring.evaluate import Scored


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
    """

    bound: float | str = "chance"
    confidence: float = 0.95
    class_names: Sequence[str] | None = None
    tokenizer: Any = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def record(
        self,
        scored: Sequence[Scored],
        owners: Sequence[Any],
        standing: Sequence[Finding] = (),
        epoch: int = 0,
        step: int = 0,
    ) -> EpochRecord:
        """Say what the scores mean.

        Args:
            scored: The whole sample.
            owners: Of class names and a tokenizer, the datamodule and the module.
            standing: The findings of the evaluation before.
            epoch: Number of the epoch.
            step: Global step.

        Raises:
            ValueError: If there are no samples, or class names do not fit.
        """
        if not scored:
            raise ValueError("the validation set gave no samples")
        names = find_class_names(self.class_names, owners, scored[0].classes)
        flagged = summary.findings(scored, names, bound=self.bound, confidence=self.confidence, epoch=epoch, step=step)
        findings, new = merge_findings(standing, flagged)
        return EpochRecord(
            epoch=epoch,
            step=step,
            scalars=summary.scalars(scored, names),
            samples=summary.table(scored, names),
            findings=findings,
            new_findings=new,
            class_names=names,
        )

    def drawn(self, record: EpochRecord, shown: Sequence[Scored], owners: Sequence[Any]) -> EpochRecord:
        """The record with pictures or highlighted texts.

        Args:
            record: Without them.
            shown: What is drawn of the sample, with inputs and annotations.
            owners: As for `record`.
        """
        look = drawing.Look(record.class_names, find_tokens(self.tokenizer, *owners), self.mean, self.std)
        return replace(record, pictures=drawing.pictures(shown, look), texts=drawing.highlights(shown, look))
