"""A flag with its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

OVERALL = "overall"


@dataclass(frozen=True)
class Finding:
    """The model's relevance lies elsewhere than on the annotation: suspected by relevance, not yet confirmed.

    Attributes:
        kind: What was found, `"focus_outside_annotation"`.
        scope: The class it was found in, or `"overall"`.
        target: Which class was explained, `"label"` or `"predicted"`.
        effect: Mean share of the relevance that lies inside the annotation, in [0, 1].
        interval: Confidence interval (low, high) of `effect`.
        confidence: Of the interval, in (0, 1).
        chance: Mean annotated share of the area: the share of a uniform map.
        bound: The share that was demanded; equals `chance` where chance was the bound.
        p_value: That `effect` lies below what was demanded, corrected by Holm's method over everything tested.
        samples: How many samples it rests on.
        worst_samples: Up to five sample ids, lowest share first.
        epoch: Of the evidence.
        step: Global step of the evidence.
        first_epoch: Since when it has been found without a break.
        state: `"suspected"` by relevance alone.
    """

    kind: str
    scope: str
    target: str
    effect: float
    interval: tuple[float, float]
    confidence: float
    chance: float
    bound: float
    p_value: float
    samples: int
    worst_samples: tuple[int | str, ...]
    epoch: int
    step: int
    first_epoch: int
    state: str = "suspected"

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes two findings of different epochs the same one."""
        return self.kind, self.scope, self.target

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, strings and lists, ready for JSON."""
        return asdict(self) | {"interval": list(self.interval), "worst_samples": list(self.worst_samples)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Finding":
        """The inverse of `to_dict`."""
        tuples = {name: tuple(values[name]) for name in ("interval", "worst_samples")}
        return cls(**{**values, **tuples})

    def __str__(self) -> str:
        where = OVERALL if self.scope == OVERALL else f"class {self.scope}"
        low, high = self.interval
        area = f"its area is {_percent(self.chance)}"
        demanded = (
            f"{area}, sample by sample the bound"
            if self.bound == self.chance
            else f"{area}; bound {_percent(self.bound)}"
        )
        return (
            f"! {where}: {_percent(self.effect)} of the relevance lies on the annotation "
            f"({_percent(self.confidence)} interval {_points(low)}-{_percent(high)}; {demanded}): "
            f"the model looks elsewhere (target {self.target}). n = {self.samples}, p = {self.p_value:.2g}, "
            f"since epoch {self.first_epoch}. Worst: {', '.join(map(str, self.worst_samples))}"
        )


def announce(findings: Iterable[Finding], most: int = 3) -> list[str]:
    """Lines to print: overall findings and the `most` worst classes in full, the other classes in one line."""
    findings = list(findings)
    classes = sorted((f for f in findings if f.scope != OVERALL), key=lambda finding: finding.effect)
    told = [f for f in findings if f.scope == OVERALL] + classes[:most]
    rest = ", ".join(f"{finding.scope} ({_percent(finding.effect)})" for finding in classes[most:])
    return [*map(str, told), *([f"! and likewise classes {rest}"] if rest else [])]


def _points(share: float) -> str:
    """A share in percentage points, with a decimal only where it would else read as nothing."""
    return f"{100 * share:.1f}" if 0 < share < 0.01 else f"{100 * share:.0f}"


def _percent(share: float) -> str:
    return f"{_points(share)} %"
