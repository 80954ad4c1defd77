"""A finding: a cue, and what its exchange between samples has shown of the model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from lrptrain.files import plain
from lrptrain.findings.markup import finding_html
from lrptrain.findings.proof import Proof, views
from lrptrain.findings.sentences import sentences

Verdict = Literal["relies", "inconclusive", "does not rely"]
"""What a test says: the interval of the effect lies above what matters, on both sides, or below."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The most severe first."""
Role = Literal["annotation", "shortcut", "unreviewed"]
STANDINGS = ("shortcut", "unreviewed", "inconclusive", "annotation", "does not rely")
"""The most severe first."""


@dataclass(frozen=True, repr=False)
class Finding:
    """What the test of a cue has shown.

    Attributes:
        name: What a person calls the cue, such as `the top left corner`.
        kind: The cue's kind; see `lrptrain.cues`.
        role: `"annotation"` (it should decide), `"shortcut"` (outside the annotation, or declared one), or
            `"unreviewed"`: it needs your review.
        verdict: Whether the model relies on it: whether the interval of the effect lies above `min_effect`.
        effect: The mean over samples of `p(answer | cue of a source with that answer) - p(answer | cue of a source with
            another)`, in [-1, 1]; nan where nothing could be swapped.
        interval: The interval (low, high) of the effect.
        samples: The number of samples in which the two differ.
        epoch: The epoch of the evaluation.
        step: Its global step.
        first_epoch: The epoch in which it was first reported.
        history: The effect in every evaluation since, the last one included.
        verdicts: The verdict in each of them.
        epochs: The epoch of each of them; empty where these are not known.
        within: The name of the cue that it is a part of; "" for none.
        share: Which share of that cue's effect it carries, in [0, 1]; None for none. Of several findings within the
            same cue only the first has one.
        by_class: The effect on the samples of each answer, by its name; empty where there are two.
        relevance: The share of the positive relevance that lies on it, in [0, 1]; None for a cue that lies everywhere.
        area: The share of pixels or tokens that it covers, in [0, 1]; None likewise.
        also_relies_on: The names of what else the model relies on, so that fixing this one is not enough.
        label: Of a model of several labels, the number of the one that relies on it; None of any other.
        input: The parameter of the model whose argument it lies in, where it is known; "" elsewhere.
        worst_samples: The ids of up to six samples with the largest effects, of those that have it where these show it.
        excerpts: Of texts, the words around it, each with its sample.
        medium: What the samples are, `"image"`, `"text"`, `"volume"` or "".
        note: What else there is to know, or "".
        fix: The line of code that swaps it in training, under the trainer of the run; "" of what needs none.
        plain: The cue as plain values; see `Cue.to_dict`.
        cue: The cue itself, which guidance exchanges; None for a finding that was read from a record.
        proof: What the exchange did to a few samples; None in all processes but the first.
    """

    name: str
    kind: str
    role: Role
    verdict: Verdict
    effect: float
    interval: tuple[float, float]
    samples: int
    epoch: int = 0
    step: int = 0
    first_epoch: int = 0
    history: tuple[float, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    epochs: tuple[int, ...] = ()
    within: str = ""
    share: float | None = None
    by_class: Mapping[str, float] = field(default_factory=dict)
    relevance: float | None = None
    area: float | None = None
    also_relies_on: tuple[str, ...] = ()
    label: int | None = None
    input: str = ""
    worst_samples: tuple[int | str, ...] = ()
    excerpts: tuple[str, ...] = ()
    medium: Literal["image", "text", "volume", ""] = ""
    note: str = ""
    fix: str = field(default="", compare=False)
    plain: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cue: Any = field(default=None, compare=False)
    proof: Proof | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Bound the share: alone, a part may do more than with all else of the whole."""
        if self.share is not None:
            object.__setattr__(self, "share", min(max(self.share, 0.0), 1.0))

    @property
    def relies(self) -> bool:
        """Whether the model relies on it."""
        return self.verdict == "relies"

    @property
    def is_fault(self) -> bool:
        """Whether the model relies on a shortcut."""
        return self.relies and self.role == "shortcut"

    @property
    def needs_review(self) -> bool:
        """Whether the model relies on what nobody has declared to be right or wrong: you decide."""
        return self.relies and self.role == "unreviewed"

    @property
    def whole(self) -> float | None:
        """The effect of `within` on the same samples, in [0, 1]; None where it is not known."""
        if self.share is None or not 0 < self.share < 1 or math.isnan(self.effect):
            return None
        return self.effect / self.share

    @property
    def is_outside(self) -> bool:
        """Whether it lies outside of annotations, and is swapped with all else there."""
        return self.plain.get("where") == "outside"

    @property
    def is_annotated(self) -> bool:
        """Whether it lies on what is annotated."""
        return self.plain.get("where") == "evidence"

    @property
    def standing(self) -> str:
        """The role of what the model relies on, else the verdict."""
        return self.role if self.relies else self.verdict

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes findings of two evaluations the same one."""
        return self.kind, self.name, self.role

    @property
    def relied_until(self) -> int | None:
        """The last epoch in which the model relied on it; None if it does, never did, or that is not known."""
        relied = [epoch for epoch, verdict in zip(self.epochs, self.verdicts, strict=False) if verdict == "relies"]
        return max(relied, default=None) if not self.relies else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, ready for JSON, with its sentences."""
        proof = None if self.proof is None else replace(self.proof, png=b"")
        values = asdict(replace(self, cue=None, proof=proof))
        del values["cue"]
        if proof is not None:
            del values["proof"]["png"]
            for sample, shown in zip(values["proof"]["samples"], proof.samples, strict=True):
                sample["titles"] = [view.title for view in views(shown, proof)]
        derived = {"is_fault": self.is_fault, "sentences": sentences(self)._asdict(), "text": str(self)}
        recorded: dict[str, Any] = plain(values | derived)
        return recorded

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Finding":
        """Return the inverse of `to_dict`, without the cue itself.

        Raises:
            KeyError: If something is missing.
            ValueError: If a verdict or role is unknown.
        """
        known: dict[str, Any] = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        known["effect"] = _number(values["effect"])
        low, high = values["interval"]
        known["interval"] = (_number(low), _number(high))
        known["history"] = tuple(map(_number, values.get("history", ())))
        for name in ("verdicts", "epochs", "also_relies_on", "worst_samples", "excerpts"):
            known[name] = tuple(values.get(name, ()))
        known["proof"] = Proof.from_dict(values["proof"]) if values.get("proof") else None
        if not {known["verdict"], *known["verdicts"]} <= {*VERDICTS}:
            raise ValueError(f"the verdict {known['verdict']!r} is none of {VERDICTS}")
        if known["epochs"] and len(known["epochs"]) != len(known["verdicts"]):
            raise ValueError(f"{len(known['verdicts'])} verdicts are of {len(known['epochs'])} epochs")
        if known["role"] not in get_args(Role):
            raise ValueError(f"the role {known['role']!r} is none of {get_args(Role)}")
        return cls(**known)

    def __getattr__(self, name: str) -> Any:
        """Name what replaces a name of earlier versions."""
        raise AttributeError(_replaced(self, name))

    def __repr__(self) -> str:
        return f"Finding({sentences(self).verdict!r})"

    def _repr_html_(self) -> str:
        return finding_html(self)

    def __str__(self) -> str:
        return " ".join(sentence for sentence in sentences(self) if sentence)


class HasFindings:
    """What holds findings says which of them are faults, and which need review."""

    findings: Sequence[Finding]

    def __getattr__(self, name: str) -> Any:
        """Name what replaces a name of earlier versions."""
        raise AttributeError(_replaced(self, name))

    def __getitem__(self, name: str) -> Finding:
        """Return a finding by its printed name, such as `report["the border"]`: the most severe of that name."""
        found = next((each for each in self.findings if each.name == name), None)
        if found is None:
            names = ", ".join(dict.fromkeys(repr(each.name) for each in self.findings))
            raise KeyError(f"no finding is named {name!r}; there are {names or 'none'}")
        return found

    @property
    def faults(self) -> list[Finding]:
        """The shortcuts that the model relies on."""
        return [each for each in self.findings if each.is_fault]

    @property
    def to_review(self) -> list[Finding]:
        """What else the model relies on, and what nobody has declared to be right or wrong: you decide."""
        return [each for each in self.findings if each.needs_review]


def _replaced(value: object, name: str) -> str:
    now = {"reads": "to_review", "is_open": "needs_review", "told_by": "also_relies_on"}.get(name)
    return f"{type(value).__name__} has no {name}" + (f"; it is {now} now" if now else "")


def reliance(findings: Iterable[Finding]) -> float:
    """Return the largest effect that is sure among faults: the largest lower end of their intervals; 0 without any."""
    return max((each.interval[0] for each in findings if each.is_fault), default=0.0)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
