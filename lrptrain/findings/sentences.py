"""A finding in a few sentences: what the model reads, the evidence for it, and what to do."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

MOST_NAMES = 6
"""So many of what is listed are named: a choice, of how long a line is."""
FOUND = re.compile(r", swap=\w+\.faults")
"""Is left out of advice on what lies outside of annotations: experiments/mending measured both."""
MEND_OPEN = "if it is no evidence: swap it in training, or take other data"
DOUBT = "Or the annotations are incomplete or shifted (lrptrain.preview shows them)."
_VERDICTS = {
    ("relies", "fault"): "SHORTCUT: the model relies on {name}.",
    ("relies", "open"): "The model reads {name}.",
    ("relies", "evidence"): "The model reads {name}, which is evidence.",
    ("not sure", ""): "Not sure whether the model relies on {name}.",
    ("does not rely", ""): "The model does not rely on {name} alone.",
}


class Sentences(NamedTuple):
    """What is said of a finding; "" for what there is nothing to say of.

    Attributes:
        verdict: Whether the model relies on the cue.
        effect: How large the effect is, and how sure.
        share: How much of what a larger cue does it does.
        told_by: What else tells the same answers.
        relevance: How much of the relevance lies on it.
        history: Since when, or until when.
        excerpt: Of texts, the words of a sample that shows it.
        doubt: What else may be the reason of a shortcut: what lies outside may be evidence that nobody marked.
        remedy: What to do about it.
    """

    verdict: str
    effect: str
    share: str
    told_by: str
    relevance: str
    history: str
    excerpt: str
    doubt: str
    remedy: str


def sentences(finding: "Finding") -> Sentences:
    """Return what is said of a finding."""
    role = finding.role if finding.relies else ""
    return Sentences(
        verdict=_VERDICTS[finding.verdict, role].format(name=finding.name),
        effect=_effect(finding),
        share=_share(finding),
        told_by=f"The answer is also told by {listed(finding.told_by)}." if finding.told_by else "",
        relevance=_relevance(finding),
        history=_history(finding),
        excerpt=f"Such as sample {finding.worst_samples[0]}: {finding.excerpts[0]}" if finding.excerpts else "",
        doubt=DOUBT if role == "fault" and finding.is_outside else "",
        remedy=_remedy(role, finding),
    )


def _remedy(role: str, finding: "Finding") -> str:
    is_outside = finding.is_outside and finding.medium in ("image", "text")
    guidance = FOUND.sub("", finding.guidance) if is_outside else finding.guidance
    return {"fault": f"{guidance}, or other data", "open": MEND_OPEN}.get(role, "")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 image` or `2 images`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return names as `a, b and c`, all beyond so many as a number."""
    parts = [*names] if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def points(share: float) -> str:
    """Return a share in whole percentage points."""
    return f"{round(100 * share):d}"


def percent(share: float) -> str:
    """Return a share as `12 %`, with a decimal only where a small one would read as 0."""
    return f"{100 * share:.1f} %" if 0.0005 < abs(share) < 0.01 else f"{points(round(share, 2))} %"


def _effect(finding: "Finding") -> str:
    if math.isnan(finding.effect):
        return finding.note or "It is the same in all samples, so that nothing can be exchanged."
    low, high = finding.interval
    interval = "" if math.isnan(low + high) else f" ({points(low)} to {points(high)})"
    sentence = (
        f"Effect {points(finding.effect)} points{interval}, of {counted(finding.samples, finding.medium or 'sample')}."
    )
    # With three answers and more, one may be told by it, and the others not.
    most = max(finding.by_class, key=lambda name: finding.by_class[name], default=None)
    if most is not None and finding.by_class[most] > 2 * max(finding.effect, 0):
        sentence += f" Most of all in answers {most!r}: {points(finding.by_class[most])} points."
    return f"{sentence} {finding.note}".rstrip()


def _share(finding: "Finding") -> str:
    if finding.share is None or not finding.within:
        return ""
    return f"That is {percent(min(finding.share, 1))} of the effect of {finding.within}."


def _relevance(finding: "Finding") -> str:
    if finding.relevance is None or finding.area is None:
        return ""
    of = finding.medium or "input"
    return f"{percent(finding.relevance)} of the relevance is there, on {percent(finding.area)} of the {of}."


def _history(finding: "Finding") -> str:
    if (until := finding.relied_until) is not None:
        return f"The model relied on it until epoch {until}."
    return f"Since epoch {finding.first_epoch}." if finding.first_epoch < finding.epoch else ""
