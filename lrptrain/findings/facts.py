"""One fact is one finding: what all samples, single classes and other kinds of maps show alike is folded into one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from lrptrain.findings.detector import get_detector
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL

if TYPE_CHECKING:
    from lrptrain.intervention import Region

STATES = ("confirmed", "suspected", "unconfirmed", "refuted")
"""The gravest first."""
SHARED_PATCHES = 0.5
"""Two places are one if so much of the smaller one, in (0, 1], lies on the other."""
SHARED_EFFECT = 0.8
"""What lies outside the annotation is a place if that has so much of its effect, in (0, 1].

Another class's surroundings move a prediction further than a place that is painted over: they speak for that class.
"""

Fact = tuple[str, str]


def fact_of(finding: Finding) -> Fact:
    """Return what findings of one fact have in common: what they say of the model, and the place that names it."""
    detector = get_detector(finding.kind)
    return detector.fact or finding.kind, finding.where if detector.named_by_place else ""


def gravity(finding: Finding) -> tuple[int, bool, bool, bool, float, float]:
    """Return what sorts findings, the gravest first.

    In this order: the state, faults before what a person has to judge, all samples before classes, label, effect and
    relevance.
    """
    share = finding.relevance.effect if finding.relevance is not None else 0.0
    # Maps of the label are those that a mask or a rationale is about: they speak before those of the prediction.
    is_narrow = finding.scope != OVERALL
    # Sorted upwards: False comes before True, and the largest effect first by its sign.
    is_open = finding.state == "confirmed" and not finding.is_fault
    return STATES.index(finding.state), is_open, is_narrow, finding.target != "label", -finding.severity, share


def count_states(findings: Iterable[Finding]) -> str:
    """Return how many facts are in which state, such as `1 confirmed, 0 suspected, 2 refuted`."""
    states: list[str] = [finding.state for finding in findings]
    # Rarer than the others: it is only named where there is any.
    named = [state for state in STATES if state != "unconfirmed" or state in states]
    return ", ".join(f"{states.count(state)} {state}" for state in named)


def unfold(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding apart, in the order of the facts."""
    return list(chain.from_iterable((replace(each, also=()), *each.also) for each in findings))


def fold(findings: Sequence[Finding]) -> list[Finding]:
    """Return one finding per fact, with the others of it in `also`.

    The gravest speaks for all of them: what is confirmed before what is suspected, all samples before a class. Nothing
    is lost, and what is folded already stays so.

    Args:
        findings: Findings of one evaluation.
    """
    return [_folded(members) for members in _grouped(findings, fact_of)]


def fold_places(findings: Sequence[Finding], region_of: Callable[[Finding], "Region"], least: float) -> list[Finding]:
    """Return facts, of which those that another place accounts for are folded into that place's.

    A tag in the corner is found thrice: at its place, as a cluster of maps that are alike, and by all that lies outside
    the annotation. Of findings on all samples that are confirmed, a cluster is that of a position where their patches
    are the same for the greater part; and what lies outside the annotation, or along the edges, is nothing but the
    position, if changing it moves the prediction further than changing the position does by less than the least effect,
    or by less than a quarter. A fault is never a part of what a person has to judge.

    Args:
        findings: Facts, as `fold` returns them.
        region_of: Returns the region that was changed to test a finding.
        least: The least mean change of a probability that matters, in (0, 1).
    """
    places = [each for each in findings if _is_place(each)]
    if not places:
        return list(findings)
    strongest = max(places, key=lambda place: place.effect)

    def explained(finding: Finding) -> bool:
        if finding is strongest or finding.state != "confirmed" or finding.scope != OVERALL:
            return False
        if not get_detector(finding.kind).seen_at_places or (finding.is_fault and not strongest.is_fault):
            return False
        region = region_of(finding)
        # e.g. the place moves the prediction by 0.30, and all outside by 0.33: with `least` at 0.05 it is the place.
        if region.kind in ("outside", "edges"):
            return finding.effect < max(strongest.effect + least, strongest.effect / SHARED_EFFECT)
        return region.kind == "patches" and _overlap(region, region_of(strongest)) >= SHARED_PATCHES

    rest = [each for each in findings if not explained(each)]
    within = unfold(each for each in findings if explained(each))
    return [replace(each, also=(*each.also, *within)) if each is strongest else each for each in rest]


def _is_place(finding: Finding) -> bool:
    return finding.kind == "focus_at_position" and finding.state == "confirmed" and finding.scope == OVERALL


def _overlap(region: "Region", other: "Region") -> float:
    """Return how much of the smaller of two sets of patches lies on the other, in [0, 1]."""
    assert isinstance(region.which, tuple)
    assert isinstance(other.which, tuple)
    return len({*region.which} & {*other.which}) / min(len(region.which), len(other.which))


def _grouped(findings: Iterable[Finding], key: Callable[[Finding], Fact]) -> list[list[Finding]]:
    """Return the findings of each fact, the facts in the order in which they come first."""
    groups: dict[Fact, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(key(finding), []).append(finding)
    return list(groups.values())


def _folded(members: Sequence[Finding]) -> Finding:
    # The gravest keeps what was folded into it; `sorted` keeps equals, as for label and prediction, in their order.
    first, *others = sorted(members, key=gravity)
    return replace(first, also=(*first.also, *unfold(others)))
