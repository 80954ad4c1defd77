"""A flag with its evidence: what the relevance says, and what an intervention says of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

OVERALL = "overall"
FOCUS = "focus_outside_annotation"
RELIANCE = "reliance_outside_annotation"
REGION = "focus_in_region"
POSITION = "focus_at_position"
TOKEN = "suspicious_token"
CLUSTER = "relevance_cluster"

State = Literal["suspected", "confirmed", "refuted"]
_STATES = {"suspected": "?", "confirmed": "!", "refuted": "-"}


@dataclass(frozen=True)
class Evidence:
    """A mean over samples and how sure it is.

    Attributes:
        effect: The mean.
        interval: Its confidence interval (low, high).
        reference: What it is compared with: chance for relevance, the change by the control for an intervention.
        p_value: That it is no better than the reference, corrected by Holm's method over all that was tested with it;
            nan where there is no test.
        samples: How many it rests on.
    """

    effect: float
    interval: tuple[float, float]
    reference: float
    p_value: float
    samples: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Evidence":
        """From JSON, which knows no nan but null."""
        known: dict[str, Any] = {name: float("nan") if value is None else value for name, value in values.items()}
        return cls(**{**known, "interval": tuple(float("nan") if x is None else x for x in values["interval"])})


@dataclass(frozen=True)
class Finding:
    """The model looks, or leans, where it should not.

    Attributes:
        kind: `"focus_outside_annotation"` (relevance), `"reliance_outside_annotation"` (the intervention alone shows
            it), `"focus_in_region"`, `"focus_at_position"`, `"suspicious_token"` or `"relevance_cluster"`.
        scope: Class `"<name>"`, group `"group <number>"`, or `"overall"`.
        where: Region or tokens in words.
        target: Which class was explained, `"label"` or `"predicted"`.
        state: `"suspected"` by relevance; `"confirmed"` or `"refuted"` by an intervention.
        relevance: Share of the positive relevance that lies on the annotation (`focus_outside_annotation`,
            `reliance_outside_annotation`) or in the region or on the tokens (all others), in [0, 1]; `reference` is a
            uniform map's. None where there is no map's evidence.
        intervention: How far the prediction moved beyond the control, in [-1, 1]; `reference` is how far the control
            moved it (the same swap within the predicted class; else an equally large random region). None where none
            was made.
        confidence: Of the intervals, in (0, 1).
        bound: The share that was demanded; equals the reference where chance was the bound.
        worst_samples: Up to five sample ids that show it best.
        epoch: Of the evidence.
        step: Global step of the evidence.
        first_epoch: Since when it has been found without a break.
        history: `effect` of every evaluation since, this one included.
        note: Why it could not be tested, or "".
    """

    kind: str
    scope: str
    target: str
    relevance: Evidence | None
    confidence: float
    epoch: int
    step: int
    first_epoch: int
    where: str = "outside the annotation"
    state: State = "suspected"
    intervention: Evidence | None = None
    bound: float | None = None
    worst_samples: tuple[int | str, ...] = ()
    history: tuple[float, ...] = field(default=())
    note: str = ""

    @property
    def evidence(self) -> Evidence:
        """The strongest there is: of the intervention, or else of the relevance."""
        found = self.intervention or self.relevance
        assert found is not None
        return found

    @property
    def effect(self) -> float:
        """Of the intervention: change of the prediction beyond the control, in [-1, 1]; before it, the relevance."""
        return self.evidence.effect

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval (low, high) of `effect`."""
        return self.evidence.interval

    @property
    def p_value(self) -> float:
        """Of `effect`, corrected by Holm's method over everything tested in the evaluation."""
        return self.evidence.p_value

    @property
    def samples(self) -> int:
        """How many samples `effect` rests on."""
        return self.evidence.samples

    @property
    def severity(self) -> float:
        """A number to gate on, in [0, 1]: the effect of what is confirmed, else 0."""
        return min(max(self.effect, 0.0), 1.0) if self.state == "confirmed" else 0.0

    @property
    def trend(self) -> float:
        """Change of `effect` per evaluation since it was first found; 0 at first."""
        return (self.history[-1] - self.history[0]) / (len(self.history) - 1) if len(self.history) > 1 else 0.0

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two findings of different epochs the same one; places may shift a little."""
        named = self.where if self.kind in (REGION, TOKEN) else ""
        return self.kind, self.scope, self.target, named

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, strings, lists and dicts, ready for JSON, with what follows from the attributes."""
        told = ("effect", "interval", "p_value", "samples", "severity", "trend")
        return _listed(asdict(self) | {name: getattr(self, name) for name in told} | {"text": str(self)})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Finding":
        """The inverse of `to_dict`."""
        own = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        for name in ("relevance", "intervention"):
            own[name] = own.get(name) and Evidence.from_dict(own[name])
        tuples = {name: tuple(own[name]) for name in ("worst_samples", "history")}
        return cls(**{**own, **tuples})

    def __str__(self) -> str:
        scope = OVERALL if self.scope.startswith((OVERALL, "group ")) else f"class {self.scope}"
        scope = self.scope if self.scope.startswith("group ") else scope
        told = [_relevance_text(self), _intervention_text(self), self.note]
        since = f"since epoch {self.first_epoch}"
        samples = f" Worst: {', '.join(map(str, self.worst_samples))}" if self.worst_samples else ""
        said = "; ".join(part for part in told if part)
        return f"{_STATES[self.state]} {self.state}, {scope}: {said}. n = {self.samples}, {since}.{samples}"


def announce(findings: Iterable[Finding], most: int = 3) -> list[str]:
    """Lines to print: the gravest overall findings and the `most` gravest others in full, the rest in one line.

    What is found for several targets alike is told once.
    """
    once: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        once.setdefault((finding.kind, finding.scope, finding.state), finding)
    ranked = sorted(once.values(), key=lambda one: (one.state == "refuted", -one.severity, _focus(one)))
    overall = [finding for finding in ranked if finding.scope == OVERALL]
    others = [finding for finding in ranked if finding.scope != OVERALL]
    rest = ", ".join(f"{finding.scope} ({_percent(_focus(finding))})" for finding in others[most:])
    told = [finding for finding in ranked if finding in overall or finding in others[:most]]
    return [*map(str, told), *([f"and likewise {rest}"] if rest else [])]


def worst_severity(findings: Iterable[Finding]) -> float:
    """The largest severity, 0 without findings."""
    return max((finding.severity for finding in findings), default=0.0)


def _focus(finding: Finding) -> float:
    return finding.relevance.effect if finding.relevance is not None else 0.0


def _relevance_text(finding: Finding) -> str:
    found = finding.relevance
    if found is None:
        return "the map does not show it"
    low, high = found.interval
    interval = f"{_percent(finding.confidence)} interval {_points(low)}-{_percent(high)}"
    if finding.kind == RELIANCE:
        return f"the map does not show it ({_percent(found.effect)} of the relevance lies on the annotation)"
    if finding.kind == FOCUS:
        demanded = "" if finding.bound in (None, found.reference) else f"; bound {_percent(finding.bound or 0)}"
        return (
            f"{_percent(found.effect)} of the relevance lies on the annotation ({interval}; "
            f"its area is {_percent(found.reference)}{demanded}{_p_value(found)})"
        )
    return (
        f"{_percent(found.effect)} of the relevance lies on {finding.where} ({interval}; "
        f"a uniform map: {_percent(found.reference)}{_p_value(found)})"
    )


def _intervention_text(finding: Finding) -> str:
    found = finding.intervention
    if found is None:
        return ""
    low, high = found.interval
    where = "what lies outside it" if finding.kind in (FOCUS, RELIANCE) else "this"
    return (
        f"changing {where} moves the prediction by {_points(found.effect + found.reference)} points, "
        f"the control by {_points(found.reference)} (difference {_points(low)} to {_points(high)}{_p_value(found)})"
    )


def _p_value(found: Evidence) -> str:
    return "" if math.isnan(found.p_value) else f"; p = {found.p_value:.2g}"


def _points(share: float) -> str:
    """A share in percentage points, with a decimal only where much would else read as nothing."""
    return f"{100 * share:.1f}" if 0.0005 < abs(share) < 0.01 else f"{100 * round(share, 2) + 0.0:.0f}"


def _percent(share: float) -> str:
    return f"{_points(share)} %"


def _listed(value: Any) -> Any:
    """With lists for tuples, all the way down."""
    if isinstance(value, dict):
        return {name: _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
