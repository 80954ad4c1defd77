"""What a monitor says when a run ends: the verdict, how many findings stand, and where they can be looked at."""

from collections.abc import Sequence
from pathlib import Path

from lrptrain.findings import Finding, worst_severity
from lrptrain.findings.announcement import look_at
from lrptrain.findings.detector import get_detector
from lrptrain.findings.facts import count_states, gravity
from lrptrain.findings.sentences import sentences
from lrptrain.monitor.power import Power
from lrptrain.terminal import fitted


def closing_words(
    title: str,
    subject: str,
    findings: Sequence[Finding],
    power: Power,
    run: Path | None,
    collapse: str = "",
    guided_by: Sequence[str] = (),
    cost: str = "",
) -> str:
    """Return a short paragraph on a run that has ended, or on a validation by itself.

    Args:
        title: What the paragraph begins with, such as the name of the monitor.
        subject: What was evaluated, on how many samples, such as `epoch 3, on 128 samples`.
        findings: The facts of the last evaluation.
        power: What could have been found, said where nothing is confirmed: a clean run proves no more than that. Where
            it tells nothing, there is no verdict.
        run: The folder of the run; None in processes that do not write.
        collapse: What is to be said of a model that has collapsed, which is graver than what it reads; "" of any other.
        guided_by: The names of what guides the model; none of one that is trained without guidance.
        cost: What the monitor took, in a sentence; "" where that is within its budget.
    """
    states = [finding.state for finding in findings]
    counts = count_states(findings)
    if collapse:
        message = f"{title}: {collapse} In {subject}: {counts}."
    elif "confirmed" in states:
        # The fault that moves answers most: it is what `relevance/severity` and a gate go by. Without one, an open one.
        gravest = min(findings, key=lambda fact: (-worst_severity([fact]), gravity(fact)))
        verdict = sentences(gravest).verdict
        failed = f" {_not_removed(gravest, guided_by)}" if guided_by else ""
        message = f"{title}: {verdict}{failed} In {subject}: {counts}."
    elif "suspected" in states:
        message = f"{title}: no shortcut confirmed in {subject}, but suspected ({counts})."
    elif "unconfirmed" in states:
        message = f"{title}: no shortcut confirmed in {subject} ({counts}). {power.text}"
    elif power.tells:
        message = f"{title}: no shortcut found in {subject} ({counts}). {power.text}"
    else:
        message = f"{title}: no verdict on {subject}. {power.text}"
    lines = [fitted(f"{message} {cost}".rstrip())]
    return "\n".join([*lines, *([f"  See: {look_at(run)}"] if run is not None else [])])


def _not_removed(gravest: Finding, guided_by: Sequence[str]) -> str:
    """Return that guidance has not done its work, and what to try."""
    remedy = get_detector(gravest.kind).remedy
    if remedy:
        way_out = f"try: {remedy}"
    elif any(name.startswith("swap of") for name in guided_by):
        way_out = "train longer, or anew on this finding, too (docs/how-to/guidance.md)"
    elif "swap" in guided_by and gravest.part is not None:
        # It may lie on the evidence, as a watermark across the object does: no swap of the surroundings reaches it.
        beside = '"outside", ' if gravest.medium == "image" else ""
        way_out = f"train longer, or anew with swap=[{beside}finding.as_fault()] (docs/how-to/guidance.md)"
    elif "swap" in guided_by:
        way_out = 'train longer, or try swap="outside+statistics"'
    else:
        way_out = 'try "swap" (docs/tutorials/mend.md)'
    return f"The guidance ({' + '.join(guided_by)}) has not removed it: {way_out}."
