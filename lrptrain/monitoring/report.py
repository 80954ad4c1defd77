"""The record of an epoch, from what was scored in it."""

from collections.abc import Sequence

from lrptrain.findings import Finding, merge_findings
from lrptrain.loggers import EpochRecord
from lrptrain.monitoring import drawing, summary
from lrptrain.monitoring.evaluate import Scored


def make_record(
    scored: Sequence[Scored],
    shown: Sequence[Scored],
    look: drawing.Look,
    standing: Sequence[Finding] = (),
    *,
    bound: float | str = "chance",
    confidence: float = 0.95,
    epoch: int = 0,
    step: int = 0,
) -> EpochRecord:
    """Say what the scores mean.

    Args:
        scored: The whole sample.
        shown: What is drawn of it, with inputs and annotations.
        look: How.
        standing: The findings of the evaluation before.
        bound: Of a finding.
        confidence: Of intervals and findings.
        epoch: Number of the epoch.
        step: Global step.

    Raises:
        ValueError: If there are no samples.
    """
    if not scored:
        raise ValueError("the validation set gave no samples")
    names = look.class_names
    flagged = summary.findings(scored, names, bound=bound, confidence=confidence, epoch=epoch, step=step)
    findings, new = merge_findings(standing, flagged)
    return EpochRecord(
        epoch=epoch,
        step=step,
        scalars=summary.scalars(scored, names),
        samples=summary.table(scored, names),
        pictures=drawing.pictures(shown, look),
        texts=drawing.highlights(shown, look),
        findings=findings,
        new_findings=new,
        class_names=list(names),
    )
