"""A finding with its evidence: what the relevance shows, and what an intervention confirms or refutes."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from lrptrain.batch.parts import InputPart
from lrptrain.findings.detector import get_detector
from lrptrain.findings.markup import finding_html
from lrptrain.findings.proof import Proof
from lrptrain.findings.scopes import Scope
from lrptrain.findings.sentences import sentences

MAX_WORST_SAMPLES = 5

State = Literal["suspected", "confirmed", "unconfirmed", "refuted"]
_STATE_MARKS = {"suspected": "?", "confirmed": "!", "unconfirmed": "-", "refuted": "-"}


@dataclass(frozen=True)
class Evidence:
    """A mean over samples, and how sure it is.

    Attributes:
        effect: The mean over the samples.
        interval: The confidence interval (low, high) of the mean.
        reference: The value that the mean is compared with: that of a uniform map for relevance, the change under the
            control for an intervention.
        p_value: The probability of such a mean if it were no better than the reference, corrected by Holm's method for
            everything that was tested with it; nan where nothing was tested.
        samples: The number of samples.
    """

    effect: float
    interval: tuple[float, float]
    reference: float
    p_value: float
    samples: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Evidence":
        """Return evidence read from JSON, which has null for nan."""
        numbers: dict[str, Any] = {name: float("nan") if value is None else value for name, value in values.items()}
        low, high = (float("nan") if bound is None else bound for bound in values["interval"])
        return cls(**{**numbers, "interval": (low, high)})


@dataclass(frozen=True, repr=False)
class Finding:
    """The model looks, or relies on something, where it should not.

    Attributes:
        kind: The identifier of the kind; see `lrptrain.findings.detectors` for the library's own.
        scope: Which samples it is about: all, a class or a group.
        target: The class that was explained, `"label"` or `"predicted"`.
        relevance: The share of the positive relevance, in [0, 1], that lies on the annotation (kinds that end in
            `outside_annotation`) or at the place (all others); `reference` is the share of a uniform map. None if no
            map shows it.
        confidence: The level of the intervals, in (0, 1).
        epoch: The epoch of the evidence.
        step: The global step of the evidence.
        first_epoch: The epoch since which it has been found without a break.
        where: The place in words, such as a region or tokens.
        state: `"suspected"` by relevance, or `"confirmed"` or `"refuted"` by an intervention; `"unconfirmed"` if taking
            the place away moved nothing, which it does not either where another cue says the same.
        intervention: How far the prediction moved beyond the control, in [-1, 1]; `reference` is how far the control
            moved it (the same swap within the predicted class; else an equally large random region). None if there was
            no intervention.
        bound: The share that was demanded; it equals the reference where chance was the bound.
        worst_samples: The ids of up to five samples that show it best.
        history: The `effect` in every evaluation since `first_epoch`, the last one included.
        states: The state in every evaluation in which the same was found of the same samples, the last ones in a row.
        note: The reason why it could not be tested, or "".
        title: What such a finding says, in a few words, for headings.
        medium: What the samples are, `"image"` or `"text"`; "" where it is not known.
        annotated: Whether some of the samples that were looked at have an annotation.
        may_be_evidence: Whether the place may be what the samples are about: without annotations, the middle of images,
            and a mark that lies there in most of them.
        beside_evidence: Whether all samples in which the place is tested have an annotation, and none of it there.
        strategy: What the intervention did to the place: `"swap"`, `"inpaint"`, `"fill"` or, to words, `"delete"`; to
            the image as a whole, `"statistics"`, `"detail"`, `"shading"` or `"edges"`; to the annotated object,
            `"location"` or `"size"`; to the text as a whole, `"length"`, or word by word `"words"`, `"punctuation"`,
            `"markers"` or `"case"`; with a mark, `"paste"` or `"common"`; "" where it is not known.
        association: How well the property that it is about tells the class of the samples, from 0 (guessing) to 1; None
            where that was not measured. See `lrptrain.findings.association`.
        part: Which part of every input the place is, so that guidance can swap it; None if it is none that all have.
        judged: Whether a person has judged that it is a fault; see `as_fault`.
        excerpts: Of texts, the words of the worst samples that show it, in their order.
        also: The further findings of the same fact, in classes and groups and for other targets; see
            `lrptrain.findings.facts`. None of them has any of its own.
        proof: What the intervention did to a few samples of a confirmed finding; None in all processes but the first.
    """

    kind: str
    scope: Scope
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
    states: tuple[State, ...] = ()
    note: str = ""
    title: str = ""
    medium: Literal["image", "text", ""] = ""
    annotated: bool = False
    may_be_evidence: bool = False
    beside_evidence: bool = False
    strategy: str = ""
    association: float | None = None
    part: InputPart | None = None
    judged: bool = False
    excerpts: tuple[str, ...] = ()
    also: tuple["Finding", ...] = ()
    proof: Proof | None = field(default=None, compare=False)

    @property
    def stands(self) -> bool:
        """Whether it is confirmed or suspected."""
        return self.state in ("confirmed", "suspected")

    @property
    def evidence(self) -> Evidence:
        """The strongest evidence: the intervention's, or else the relevance's."""
        strongest = self.intervention or self.relevance
        assert strongest is not None
        return strongest

    @property
    def effect(self) -> float:
        """Change of the prediction beyond the control, in [-1, 1]; before an intervention, the share of relevance."""
        return self.evidence.effect

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval (low, high) of `effect`."""
        return self.evidence.interval

    @property
    def p_value(self) -> float:
        """P-value of `effect`, corrected by Holm's method for everything tested in the evaluation."""
        return self.evidence.p_value

    @property
    def samples(self) -> int:
        """Number of samples that `effect` rests on."""
        return self.evidence.samples

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault for sure once it is confirmed: others are for a person to judge, not for a gate."""
        return self.judged or (get_detector(self.kind).is_fault and not self.may_be_evidence)

    def as_fault(self) -> "Finding":
        """Return the same finding as one that a person has judged to be a fault: so guidance swaps what it names."""
        return replace(self, judged=True)

    @property
    def severity(self) -> float:
        """A number to gate on, in [0, 1]: the effect of what is confirmed and a fault for sure, else 0."""
        return min(max(self.effect, 0.0), 1.0) if self.state == "confirmed" and self.is_fault else 0.0

    @property
    def trend(self) -> float:
        """Change of `effect` per evaluation since it was first found; 0 at first."""
        return (self.history[-1] - self.history[0]) / (len(self.history) - 1) if len(self.history) > 1 else 0.0

    @property
    def identity(self) -> tuple[str, Scope, str, str]:
        """What makes two findings of different epochs the same one; see `Detector.named_by_place`."""
        # The words for a position change with every patch more or less: by them, a finding would be new in each epoch.
        place = self.where if get_detector(self.kind).named_by_place else ""
        return self.kind, self.scope, self.target, place

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, ready for JSON, with what follows from the attributes.

        `sentences` are those of `lrptrain.findings.sentences`, and `text` is the same finding with intervals and
        p-values.
        """
        derived = ("effect", "interval", "p_value", "samples", "is_fault", "severity", "trend")
        proof = None if self.proof is None else replace(self.proof, png=b"")
        values = (
            asdict(replace(self, also=(), proof=proof))
            | self.scope.to_dict()
            | {name: getattr(self, name) for name in derived}
        )
        if proof is not None:
            del values["proof"]["png"]
        plain: dict[str, Any] = _with_lists(values | {"text": str(self), "sentences": sentences(self)._asdict()})
        return plain | {"also": [each.to_dict() for each in self.also]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Finding":
        """Return the inverse of `to_dict`; records of older runs lack some attributes."""
        # `to_dict` also writes what follows from the attributes, such as `severity`: that is computed again.
        fields = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        fields["scope"] = Scope.from_dict(values)
        fields["title"] = values.get("title") or get_detector(values["kind"]).title
        for name in ("relevance", "intervention"):
            fields[name] = Evidence.from_dict(values[name]) if values.get(name) else None
        for name in ("worst_samples", "history", "states", "excerpts"):
            fields[name] = tuple(values.get(name, ()))
        fields["proof"] = Proof.from_dict(values["proof"]) if values.get("proof") else None
        fields["part"] = InputPart.from_dict(values["part"]) if values.get("part") else None
        fields["also"] = tuple(cls.from_dict(each) for each in values.get("also", ()))
        return cls(**fields)

    def __repr__(self) -> str:
        return f"Finding({sentences(self).verdict!r})"

    def _repr_html_(self) -> str:
        return finding_html(self)

    def __str__(self) -> str:
        detector = get_detector(self.kind)
        sentences = (detector.relevance_sentence(self), detector.intervention_sentence(self), self.note)
        evidence = "; ".join(sentence for sentence in sentences if sentence)
        worst = f" Worst: {', '.join(map(str, self.worst_samples))}" if self.worst_samples else ""
        return (
            f"{_STATE_MARKS[self.state]} {self.state}, {self.scope}: {evidence}. "
            f"n = {self.samples}, since epoch {self.first_epoch}.{worst}"
        )


def worst_severity(findings: Iterable[Finding]) -> float:
    """Return the largest severity of what is a fault for sure, also of what is folded into others; 0 without any."""
    every = (each for finding in findings for each in (finding, *finding.also))
    return max((each.severity for each in every), default=0.0)


def _with_lists(value: Any) -> Any:
    """Return the value with lists for tuples, all the way down."""
    if isinstance(value, dict):
        return {name: _with_lists(item) for name, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value
