"""Kinds of findings: each is a `Detector`, an object that looks for them and says how they are put into words.

A new kind is one file: a class with `kind`, `title` and `detect`, and a call of `register_detector`. A file in
`lrptrain/findings/detectors` is imported without a list that names it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from lrptrain.findings import wording

if TYPE_CHECKING:
    from lrptrain.findings.evaluation import Evaluation
    from lrptrain.findings.finding import Finding
    from lrptrain.intervention import Region


@dataclass(frozen=True)
class DetectionConfig:
    """When relevance counts as a finding.

    Attributes:
        class_names: The name of each class, in the order of the logits.
        name_tokens: Brings token ids to token strings.
        bound: The share of the relevance, in (0, 1), that must lie on the annotation; "chance" for the annotated area.
        confidence: The level of intervals and tests, in (0, 1).
        region_names: The names of the regions of a mask `[regions, height, width]`; the first is the evidence.
        tokenizer: That of the texts; None where it is not known, so that `name_tokens` gives numbers.
    """

    class_names: Sequence[str]
    name_tokens: Callable[[list[int]], list[str]]
    bound: float | str = "chance"
    confidence: float = 0.95
    region_names: Sequence[str] = ()
    tokenizer: Any = None


class Candidate(NamedTuple):
    """A finding for an intervention to confirm or refute.

    Attributes:
        finding: The finding as the relevance shows it, suspected.
        region: The part of the input to change.
        rows: The samples to change it in, as indices into those of the evaluation.
    """

    finding: "Finding"
    region: "Region"
    rows: Int[np.ndarray, " n"]


class Detector(Protocol):
    """A kind of finding.

    Classes that derive from it need `kind`, `title` and `detect`, and inherit the rest.

    Attributes:
        kind: The identifier in records and tables, such as `"focus_at_position"`.
        title: What such a finding says, in a few words, for headings.
        order: Detectors look, and are reported, in ascending order; the library's own have 10 to 60.
        named_by_place: Whether findings at two places, such as two tokens, are two findings. Otherwise the place may
            change from one evaluation to the next, and the finding is the same.
        least_effect: The least mean change of a probability that confirms the finding, in [0, 1), where it exceeds that
            of the configuration.
        reported_unconfirmed: Whether it is reported if an intervention did not confirm it.
        fact: What findings of several kinds say alike, so that they are one fact; "" for the kind itself.
        seen_at_places: Whether it may be what a confirmed place shows otherwise; see `lrptrain.findings.facts`.
        verb: What the model does with the place, in a sentence: `the model <verb> <place>`.
        is_fault: Whether a confirmed finding is a fault for sure. If not, its verdict says that a person has to judge,
            and no gate fails on it.
        remedy: What to do about a confirmed finding; "" for what is done about most: other data, or guidance.
    """

    kind: str
    title: str
    order: int = 100
    named_by_place: bool = False
    least_effect: float = 0.0
    reported_unconfirmed: bool = True
    fact: str = ""
    seen_at_places: bool = False
    verb: str = "relies on"
    is_fault: bool = True
    remedy: str = ""

    def detect(self, evaluation: "Evaluation", config: DetectionConfig) -> Iterable[Candidate]:
        """Return what the relevance of an evaluation makes suspect."""
        ...

    def least_effect_of(self, finding: "Finding") -> float:
        """Return the `least_effect` that a finding takes, where it depends on what its samples are."""
        return self.least_effect

    def place(self, finding: "Finding") -> str:
        """Return what the model relies on, as a noun."""
        return finding.where

    def share_sentence(self, finding: "Finding") -> str:
        """Return how much of the relevance lies where, in plain words; "" if the maps do not say."""
        return wording.share_there(finding)

    def relevance_sentence(self, finding: "Finding") -> str:
        """Return what the relevance says of a finding of this kind."""
        return wording.relevance_sentence(finding, finding.where, "a uniform map:")

    def intervention_sentence(self, finding: "Finding") -> str:
        """Return what the intervention says of a finding of this kind; "" if there was none."""
        return wording.intervention_sentence(finding, "this")


class UnknownKind(Detector):
    """A kind that no detector is registered for, as in the record of a run that had one of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.title = kind.replace("_", " ")

    def detect(self, evaluation: "Evaluation", config: DetectionConfig) -> Iterable[Candidate]:
        """Return nothing."""
        return ()


_DETECTORS: dict[str, Detector] = {}


def register_detector(detector: Detector) -> Callable[[], None]:
    """Let every later evaluation look for another kind of finding.

    Args:
        detector: The object for the kind. Its candidates come in ascending `order`, among equals in the order of
            registration.

    Returns:
        A function that removes the registration.

    Raises:
        ValueError: If the kind is registered already.
    """
    if detector.kind in _DETECTORS:
        raise ValueError(f"a detector of the kind {detector.kind!r} is registered already: give yours another kind")
    _DETECTORS[detector.kind] = detector

    def remove() -> None:
        if _DETECTORS.get(detector.kind) is detector:
            del _DETECTORS[detector.kind]

    return remove


def detectors() -> list[Detector]:
    """Return the detectors of all kinds in ascending `order`; equals in the order in which they were registered."""
    # Not imported above: reading a record needs no detector, and these load the parts that intervene on models.
    import_module("lrptrain.findings.detectors")
    return sorted(_DETECTORS.values(), key=lambda detector: detector.order)


def get_detector(kind: str) -> Detector:
    """Return the detector of a kind; for a kind that is not registered, one that only knows the common sentences."""
    return next((detector for detector in detectors() if detector.kind == kind), UnknownKind(kind))


def detect_candidates(
    evaluation: "Evaluation",
    config: DetectionConfig,
    on_failure: Callable[[str, Exception], None] | None = None,
) -> list[Candidate]:
    """Return the candidates of all detectors, whose findings say what the samples are, and which part of them it is.

    Args:
        evaluation: The explained samples. With `inputs`, there will be an intervention: then places are candidates,
            too, that only an intervention can show to matter.
        config: When relevance counts as a finding.
        on_failure: Takes the kind of a detector that raised, and the error; the other detectors go on, and none of the
            candidates of this one is returned. None passes the error on.

    Raises:
        Exception: What a detector raised, without `on_failure`, or what `on_failure` raises.
    """
    candidates: list[Candidate] = []
    for detector in detectors():
        try:
            # A generator raises while it is read: what it gave before its error is not kept.
            candidates += list(detector.detect(evaluation, config))
        except Exception as error:
            if on_failure is None:
                raise
            on_failure(detector.kind, error)
    return [each._replace(finding=_complete(each, evaluation)) for each in candidates]


def _complete(candidate: Candidate, evaluation: "Evaluation") -> "Finding":
    """Return the finding of a candidate with what every detector would say alike."""
    # Not imported above: reading a record needs no intervention.
    from lrptrain.intervention.parts import part_of

    finding = candidate.finding
    name = get_detector(finding.kind).place(finding)
    part = finding.part or part_of(candidate.region, name, evaluation.grid, evaluation.inputs or ())
    return replace(finding, medium=evaluation.medium, part=part)
