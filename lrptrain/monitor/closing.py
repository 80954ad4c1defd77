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

    `collapse` is what is said of a model that has collapsed, and `guided_by` names what guides its training.
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
