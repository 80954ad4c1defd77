"""A finding in a few sentences: what the model relies on, the evidence for it, and what to do."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

MOST_NAMES = 6
"""So many of what is listed are named: a choice, of how long a line is."""
DOUBT = "Or the annotations are incomplete or shifted (lrptrain.preview shows them)."
_VERDICTS = {
    ("relies", "shortcut"): "SHORTCUT: the model relies on {name}.",
    ("relies", "unreviewed"): "NEEDS REVIEW: the model relies on {name}.",
    ("relies", "annotation"): "The model relies on {name}, as you declared that it should.",
    ("inconclusive", ""): "Inconclusive: the model may rely on {name}.",
    ("does not rely", ""): "The model does not rely on {name} alone.",
}
_REMEDIES = {"shortcut": "Fix: ", "unreviewed": "If the model should not use it: "}


class Sentences(NamedTuple):
    """What is said of a finding; "" for what there is nothing to say of.

    Attributes:
        verdict: Whether the model relies on the cue.
        effect: How large the effect is, and how sure.
        share: How much of what a larger cue does it does.
        also_relies_on: What else the model relies on.
        relevance: How much of the relevance lies on it.
        history: Since when, or until when.
        excerpt: Of texts, the words of a sample that shows it.
        doubt: What else may be the reason of a shortcut: what lies outside may be evidence that nobody marked.
        remedy: What to do about it, with a line of code that can be pasted.
    """

    verdict: str
    effect: str
    share: str
    also_relies_on: str
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
        also_relies_on=f"The model also relies on {listed(finding.also_relies_on)}." if finding.also_relies_on else "",
        relevance=_relevance(finding),
        history=_history(finding),
        excerpt=f"Such as {finding.excerpts[0]}" if finding.excerpts else "",
        doubt=DOUBT if role == "shortcut" and finding.is_outside else "",
        remedy=f"{_REMEDIES[role]}{finding.fix}" if role in _REMEDIES and finding.fix else "",
    )


def beside_guessing(accuracy: float, guessing: float) -> list[str]:
    """Return the accuracy of a model, and that of guessing; nothing of what is not known."""
    parts = {"accuracy": accuracy, "guessing": guessing}
    return [f"{word} {percent(share)}" for word, share in parts.items() if not math.isnan(share)]


def headline(findings: Sequence["Finding"], can_fault: bool = True) -> str:
    """Return how many shortcuts there are, if any `can_fault`, what needs review, and how much effect has no name."""
    faults, names = sum(each.is_fault for each in findings), [each.name for each in findings if each.needs_review]
    doubts = sum(each.role == "shortcut" and each.verdict == "inconclusive" for each in findings)
    shortcuts = counted(faults, "shortcut") + (f", {doubts} inconclusive" if doubts else "")
    none = "No annotations, so that nothing can be flagged as a shortcut"
    review = [f"{len(names)} need{'s' if len(names) == 1 else ''} review: {listed(names, 3)}"] if names else []
    return f"{'; '.join([shortcuts if faults or can_fault else none, *review])}. {_unfound(findings)}".rstrip()


def _unfound(findings: Sequence["Finding"]) -> str:
    """Return how much of the effect of a whole lies in nothing that is named, where that is most of it."""
    first = next((each for each in findings if each.relies and each.whole is not None), None)
    # Of a text with annotations, the whole has what people marked, too.
    if first is None or first.whole is None or (first.medium == "text" and first.is_outside):
        return ""
    alike = [each for each in findings if each.relies and (each.within, each.label) == (first.within, first.label)]
    rest = first.whole - sum(each.effect for each in alike)
    if rest <= first.whole / 2:
        return ""
    share = f"{points(rest)} of {points(first.whole)} points"
    return f"Most of the effect of {first.within} ({share}) lies in nothing that is named here."


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
    # With three answers and more, one may be predictable from it, and the others not.
    most = max(finding.by_class, key=lambda name: finding.by_class[name], default=None)
    if most is not None and finding.by_class[most] > 2 * max(finding.effect, 0):
        sentence += f" Most of all in answers {most!r}: {points(finding.by_class[most])} points."
    return f"{sentence} {finding.note}".rstrip()


def _share(finding: "Finding") -> str:
    if finding.share is None or not finding.within or math.isnan(finding.effect):
        return ""
    if finding.whole is None or points(finding.whole) == points(finding.effect):
        return f"That is all of the effect of {finding.within}."
    return f"That is {points(finding.effect)} of the {points(finding.whole)} points of {finding.within}."


def _relevance(finding: "Finding") -> str:
    if finding.relevance is None or finding.area is None:
        return ""
    of = finding.medium or "input"
    return f"{percent(finding.relevance)} of the relevance is there, on {percent(finding.area)} of the {of}."


def _history(finding: "Finding") -> str:
    if (until := finding.relied_until) is not None:
        return f"The model relied on it until epoch {until}."
    return f"Since epoch {finding.first_epoch}." if finding.first_epoch < finding.epoch else ""
