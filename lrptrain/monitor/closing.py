"""What a monitor says when a run ends: the verdict, how many findings stand, and where they can be looked at."""

from collections.abc import Sequence
from pathlib import Path

from lrptrain.findings import Finding
from lrptrain.findings.announcement import look_at
from lrptrain.findings.detector import get_detector
from lrptrain.findings.facts import count_states, gravity
from lrptrain.findings.sentences import sentences
from lrptrain.terminal import fitted


def closing_words(
    title: str,
    epoch: int,
    findings: Sequence[Finding],
    power: str,
    run: Path | None,
    collapse: str = "",
    guided_by: Sequence[str] = (),
) -> str:
    """Return a short paragraph on a run that has ended.

    Args:
        title: What the monitor is called.
        epoch: The epoch of the last evaluation.
        findings: The facts of the last evaluation.
        power: What could have been found, said where nothing is confirmed: a clean run proves no more than that.
        run: The folder of the run; None in processes that do not write.
        collapse: What is to be said of a model that has collapsed, which is graver than what it reads; "" of any other.
        guided_by: The names of what guides the model; none of one that is trained without guidance.
    """
    states = [finding.state for finding in findings]
    counts = count_states(findings)
    if collapse:
        message = f"{title} ends: {collapse} In epoch {epoch}: {counts}."
    elif "confirmed" in states:
        gravest = min(findings, key=gravity)
        verdict = sentences(gravest).verdict
        failed = f" {_not_removed(gravest, guided_by)}" if guided_by else ""
        message = f"{title} ends: {verdict}{failed} In epoch {epoch}: {counts}."
    elif "suspected" in states:
        message = f"{title} ends: no shortcut confirmed in epoch {epoch}, but suspected ({counts})."
    elif "unconfirmed" in states:
        message = f"{title} ends: no shortcut confirmed in epoch {epoch} ({counts}). {power}"
    else:
        message = f"{title} ends: no shortcut found in epoch {epoch} ({counts}). {power}"
    lines = [fitted(message)]
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
