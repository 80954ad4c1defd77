"""How a run ends, in a paragraph: where its findings stand, and where they can be looked at."""

from collections.abc import Sequence
from pathlib import Path

from lrptrain.findings import Finding
from lrptrain.findings.announcement import look_at
from lrptrain.findings.sentences import headline, sentences
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
        findings: The findings of the last evaluation, the most severe first.
        power: What was tested, said where there is no fault. Where it tells nothing, there is no verdict.
        run: The folder of the run; None in processes that do not write.
        collapse: What is to be said of a model that has collapsed, which comes before all else; "" of any other.
        guided_by: The names of what guides the model; none of one that is trained without guidance.
        cost: What the monitor took, in a sentence; "" where that is within its budget.
    """
    faults = [each for each in findings if each.is_fault]
    found = headline(findings, power.can_fault)
    if collapse:
        message = f"{title}: {collapse} In {subject}."
    elif faults:
        failed = _not_removed(guided_by) if guided_by else ""
        message = f"{title}: {sentences(faults[0]).verdict} In {subject}: {found}{failed} {sentences(faults[0]).doubt}"
    elif power.tells:
        message = f"{title}: {found} In {subject}. {power.short or power.text}"
    else:
        message = f"{title}: no verdict on {subject}. {power.text}"
    lines = [fitted(f"{message} {cost}".rstrip())]
    return "\n".join([*lines, *([f"  See: {look_at(run)}"] if run is not None else [])])


def _not_removed(guided_by: Sequence[str]) -> str:
    """Return that guidance has not done its work, and what to try."""
    way_out = "train longer" if any(each.startswith("swap") for each in guided_by) else 'try "swap"'
    return f" The guidance ({' + '.join(guided_by)}) has not removed it: {way_out} (docs/how-to/guidance.md)."
