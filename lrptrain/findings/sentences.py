"""A finding in a few sentences: what is wrong, the evidence, and what to do; intervals and p-values are elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lrptrain.findings.detector import get_detector
from lrptrain.findings.scopes import OVERALL, Scope
from lrptrain.findings.wording import points

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

MOST_NAMES = 6
"""So many classes are named; more are counted."""
_VERDICTS = {
    "confirmed": "{confirmed_as}, {scope}: the model {verb} {place}.",
    "suspected": "Suspected, {scope}: the maps point at {place}.",
    "unconfirmed": "Not confirmed by removal, {scope}: the maps point at {place}.",
    "refuted": "Refuted, {scope}: the model does not rely on {place}.",
}
# By `Finding.is_fault`.
_CONFIRMED = {True: "SHORTCUT confirmed", False: "Confirmed, for you to judge"}
# By strategy: what was done to the place, and what the control was.
_CHANGES = {
    "swap": ("Swapped for another class's", "the same class's"),
    "statistics": ("Given another class's colour and contrast", "the same class's"),
    "detail": ("Given another class's sharpness, noise and patterns", "the same class's"),
    "shading": ("Lit like another class's image", "one of the same class"),
    "edges": ("Given the edges of another class's image", "of the same class's"),
    "location": ("Put where another class's object lies", "the same class's"),
    "size": ("Made as large as another class's object", "the same class's"),
    "length": ("Made as long as another class's text", "the same class's"),
    "words": ("Exchanged for those of another class's text", "the same class's"),
    "punctuation": ("Given the punctuation of another class's text", "the same class's"),
    "markers": ("Given those of another class's text", "the same class's"),
    "case": ("Capitalised like another class's text", "the same class's"),
    "paste": ("Put into images of other classes", "another piece of its image"),
    "statistics_of_class": ("Other images given the class's colour and contrast", "a third class's"),
    "detail_of_class": ("Other images given the class's fine detail", "a third class's"),
    "common": ("Drawn on images of other classes", "what a third class has in common there"),
    "inpaint": ("Painted over", "random places"),
    "fill": ("Covered with the mean colour", "random places"),
    "delete": ("Deleted", "random words"),
    "": ("With that changed", "control"),
}
_RISES = ("statistics_of_class", "detail_of_class", "common")
"""Strategies that measure how far the probability of the finding's class rises; others, how far the answer's falls."""
_PLURALS = {"class": "classes", "group": "groups"}
# By whether there are annotations, by which guidance goes.
_REMEDIES = {
    True: 'data without it, or guidance by "swap": docs/tutorials/mend.md',
    False: "data without it, or annotate and guide: docs/tutorials/mend.md",
}
_REMEDY_BY_ITSELF = 'data without it, or guidance by swap="findings": docs/tutorials/mend.md'
_REMEDY_OF_DOUBT = "if it is {evidence}, annotate and guide: docs/tutorials/mend.md"
# An annotation of the object holds what is drawn on it, and a swap of what lies outside leaves it.
_REMEDY_OF_DOUBT_BY_ITSELF = "if {evidence}, swap=[finding.as_fault()]: docs/how-to/guidance.md"


class Sentences(NamedTuple):
    """What is said of a finding.

    Attributes:
        verdict: What is wrong, of which samples.
        intervention: How far the intervention moved the prediction, or why there was none.
        relevance: How much of the relevance lies where; "" if no map says.
        likewise: In which other classes and groups the same is confirmed, suspected or not confirmed; "" in none.
        samples: How many samples it rests on, and since when it has been found.
        excerpt: Of texts, the words of the sample that shows it best; "" of images.
        remedy: What to do about it; "" where it is not confirmed.
    """

    verdict: str
    intervention: str
    relevance: str
    likewise: str
    samples: str
    excerpt: str
    remedy: str


def sentences(finding: "Finding") -> Sentences:
    """Return what is said of a finding and of those that are folded into it."""
    detector = get_detector(finding.kind)
    # Where a class has another verdict, all samples together have this one, and not each class.
    differs = any(_says_the_same(each, finding) and each.state != finding.state for each in finding.also)
    everything = "all classes together" if differs else "all classes"
    scope = everything if finding.scope == OVERALL else str(finding.scope)
    verdict = _VERDICTS[finding.state].format(
        scope=scope, verb=detector.verb, place=detector.place(finding), confirmed_as=_CONFIRMED[finding.is_fault]
    )
    return Sentences(
        verdict=verdict,
        intervention=_intervention(finding),
        relevance=detector.share_sentence(finding),
        likewise=_likewise(finding),
        samples=f"{counted(finding.samples, finding.medium or 'sample')} since epoch {finding.first_epoch}.",
        excerpt=f"Such as sample {finding.worst_samples[0]}: {finding.excerpts[0]}" if finding.excerpts else "",
        remedy=_remedy(finding) if finding.state == "confirmed" else "",
    )


def _remedy(finding: "Finding") -> str:
    """Return what to try first against what is confirmed."""
    if finding.may_be_evidence:
        remedy = _REMEDY_OF_DOUBT if finding.part is None else _REMEDY_OF_DOUBT_BY_ITSELF
        return remedy.format(evidence="no evidence" if finding.medium == "text" else "not the object")
    own = get_detector(finding.kind).remedy
    if own or finding.annotated or finding.part is None or finding.part.may_be_the_object:
        return own or _REMEDIES[finding.annotated]
    return _REMEDY_BY_ITSELF


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 image` or `2 images`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _intervention(finding: "Finding") -> str:
    evidence = finding.intervention
    if evidence is None:
        return f"Not tested: {finding.note}." if finding.note else "No intervention has tested it."
    change, control = change_in_words(finding.strategy)
    rises = finding.strategy in _RISES
    fall = (evidence.effect + evidence.reference) * (-1 if rises else 1)
    size = points(abs(fall))
    moved = f"{'rises' if fall < 0 and size != '0' else 'falls'} by {size} {'point' if size == '1' else 'points'}"
    sure = evidence.p_value <= 1 - finding.confidence and evidence.interval[0] > 0
    comment = ""
    if finding.state == "suspected" and sure:
        comment = " That is too little to confirm it."
    elif finding.state == "suspected":
        # The p-value counts how many samples move the same way; of a few, or of many that differ, it stays large.
        comment = f" Too few {finding.medium or 'sample'}s agree to confirm it."
    elif finding.state == "unconfirmed":
        comment = " Another cue may say the same."
    # Whole points: what moves a control by less is noise.
    what = "the class" if rises else "the answer"
    return f"{change}, {what}'s probability {moved} ({control}: {points(round(evidence.reference, 2))}).{comment}"


def change_in_words(strategy: str) -> tuple[str, str]:
    """Return what an intervention did to the place, and what its control did instead."""
    return _CHANGES.get(strategy, _CHANGES[""])


def _likewise(finding: "Finding") -> str:
    """Return where else the same was seen, each scope once and none with two verdicts."""
    # Maps for the label and for the predicted class mostly show the same, and other kinds speak for themselves.
    gravest: dict[Scope, str] = {finding.scope: ""}
    alike = [each for each in finding.also if _says_the_same(each, finding)]
    # The gravest state comes first, and `setdefault` keeps it: one verdict per scope.
    for state in _VERDICTS:
        for each in alike:
            if each.state == state:
                gravest.setdefault(each.scope, state)
    beginnings = {
        "confirmed": "Also in",
        "suspected": "Suspected in",
        "unconfirmed": "Not confirmed by removal in",
        "refuted": "Not confirmed in",
    }
    del beginnings[finding.state]
    beginnings = {finding.state: "Also in", **beginnings}
    groups = [
        (words, [scope for scope, worst in gravest.items() if worst == state]) for state, words in beginnings.items()
    ]
    return " ".join(f"{words} {_named(scopes)}." for words, scopes in groups if scopes)


def _says_the_same(finding: "Finding", other: "Finding") -> bool:
    kinds = [get_detector(each.kind).fact or each.kind for each in (finding, other)]
    return kinds[0] == kinds[1]


def _named(scopes: Sequence[Scope]) -> str:
    """Return scopes such as `class dog`, `classes dog and fox` or `class dog and group 1`."""
    kinds = {scope.kind for scope in scopes}
    if len(scopes) > 1 and len(kinds) == 1:
        return f"{_PLURALS[scopes[0].kind]} {listed([scope.name for scope in scopes])}"
    return listed(["all classes together" if scope == OVERALL else str(scope) for scope in scopes])


def listed(names: Sequence[str]) -> str:
    """Return names as `a, b and c`, the last of many as a number."""
    parts = [*names] if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
