"""Does the relevance lie on the annotation, or in a named region? One test overall, one per class and per group."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import MAX_WORST_SAMPLES, Evidence, Finding
from lrptrain.findings.scopes import OVERALL, Scope, split_into_scopes
from lrptrain.findings.statistics import bootstrap_interval, holm, sign_flip_test
from lrptrain.findings.wording import intervention_sentence, percent, relevance_sentence, share_on_annotation
from lrptrain.intervention import Region

SCORE = "energy_pointing_game"
"""The score that is tested: the share of the positive relevance that lies on the annotation."""

LEAST_EFFECT_ON_IMAGES = 0.2
"""The least mean change of a probability that confirms that a model leans on the surroundings of images."""
LEAST_EFFECT_IN_A_CLASS = 0.5
"""The same of the texts of one class, whether the maps show it or not. A sound model may read only what speaks for one
class, and take all else for the other: clean models of tweets had up to 0.42 (its interval from 0.32 on) in one class
beside 0.02 in the other half-way through their training, and 0.32 at its end. That is an effect, and no noise: a
stricter interval would not tell it from a shortcut. All texts together have up to 0.22 then, and where a shortcut was
planted either class has 0.5 and more. The map of a class that such a model does not read lies anywhere, and so outside
the annotation, too: it is no second witness. In the development runs all texts together were confirmed wherever one
class was by less."""
SHOWN = 0.5
"""Maps with so much of their relevance outside the annotation show a reliance on what lies there."""
HIDDEN = 0.1
"""Maps with less than that there do not show it."""


class FocusOutsideAnnotation(Detector):
    """The relevance lies outside the annotation."""

    kind = "focus_outside_annotation"
    title = "The relevance lies outside the annotation"
    order = 10
    seen_at_places = True

    def least_effect_of(self, finding: Finding) -> float:
        """Return what a single class or group of texts takes; of all else the configuration demands enough."""
        return LEAST_EFFECT_IN_A_CLASS if finding.medium == "text" and finding.scope != OVERALL else self.least_effect

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the scopes whose maps show it and, if there will be an intervention, those whose maps do not.

        The latter are of the kind `RelianceOutsideAnnotation`: one family of tests decides between the two.
        """
        for target in evaluation.targets:
            chance = [explained.chance for explained in evaluation.samples]
            yield from _focus_candidates(evaluation, config, target, f"{target}/{SCORE}", chance, Region("outside"))

    def place(self, finding: Finding) -> str:
        """Return what the model relies on, as a noun."""
        return "what lies outside the annotation"

    def share_sentence(self, finding: Finding) -> str:
        """Return how much of the relevance lies on the annotation."""
        return share_on_annotation(finding)

    def relevance_sentence(self, finding: Finding) -> str:
        """Return how much of the relevance lies on the annotation."""
        return relevance_sentence(finding, "the annotation", "its area is")

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what changing all but the annotation does."""
        return intervention_sentence(finding, "what lies outside it")


class RelianceOutsideAnnotation(Detector):
    """The prediction relies on what lies outside the annotation, though the test of the maps does not suspect it.

    Maps that point at the surroundings no more than a uniform one raise no suspicion, and yet may show a part of it.

    It is confirmed by a larger effect than other kinds, and only reported when confirmed: what people annotate is
    hardly ever all the evidence there is, so that a sound model relies on the rest, too. Of texts more than of images:
    words that nobody marked carry the mood, too (`least_effect`, `LEAST_EFFECT_ON_IMAGES`).
    """

    kind = "reliance_outside_annotation"
    title = "The prediction leans on what lies outside the annotation"
    order = 20
    seen_at_places = True
    fact = FocusOutsideAnnotation.kind
    least_effect = 0.3
    reported_unconfirmed = False

    def least_effect_of(self, finding: Finding) -> float:
        """Return less for images than for texts and all else, and of these more for a single class or group."""
        if finding.medium == "image":
            return LEAST_EFFECT_ON_IMAGES
        return self.least_effect if finding.scope == OVERALL else LEAST_EFFECT_IN_A_CLASS

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterable[Candidate]:
        """Return nothing: `FocusOutsideAnnotation` has tested the same scopes."""
        return ()

    def place(self, finding: Finding) -> str:
        """Return what the model relies on, as a noun."""
        return "what lies outside the annotation"

    def share_sentence(self, finding: Finding) -> str:
        """Return how far the maps show it, and how much of the relevance lies on the annotation."""
        sentence = share_on_annotation(finding)
        return f"The maps {_shown(finding)}: {sentence}" if sentence else "The maps do not show it."

    def relevance_sentence(self, finding: Finding) -> str:
        """Return how far the maps show it, and how much of the relevance lies on the annotation."""
        if finding.relevance is None:
            return "the maps do not show it"
        return (
            f"the maps {_shown(finding)} ({percent(finding.relevance.effect)} of the relevance lies on the annotation)"
        )

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what changing all but the annotation does."""
        return intervention_sentence(finding, "what lies outside it")


class FocusInRegion(Detector):
    """The relevance lies in a named region that is no evidence."""

    kind = "focus_in_region"
    title = "The relevance lies on a region"
    order = 30
    named_by_place = True

    def place(self, finding: Finding) -> str:
        """Return what the model relies on, as a noun."""
        return f"the region {finding.where!r}"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the scopes whose relevance lies in a region, other than the first, which is the evidence."""
        for target in evaluation.targets:
            for index, name in enumerate(config.region_names):
                if index > 0:
                    areas = [explained.areas.get(name, np.nan) for explained in evaluation.samples]
                    column = f"{target}/region/{name}"
                    region = Region("named", index)
                    yield from _focus_candidates(evaluation, config, target, column, areas, region, name)


def _shown(finding: Finding) -> str:
    """Return whether the maps show a reliance on what lies outside the annotation, in words."""
    assert finding.relevance is not None
    outside = 1 - finding.relevance.effect
    if outside >= SHOWN:
        return "show it"
    return "do not show it" if outside < HIDDEN else "show a part of it"


def _focus_candidates(
    evaluation: Evaluation,
    config: DetectionConfig,
    target: str,
    column: str,
    chance: Sequence[float],
    region: Region,
    region_name: str = "",
) -> Iterator[Candidate]:
    """Return candidates for one target: of every scope for the first target, of all samples together for the others.

    Maps for the predicted class differ from those for the label in misclassified samples only, so that repeating each
    class would say little.
    """
    # Samples without a label have no values for the target "label".
    rows = np.array([row for row, explained in enumerate(evaluation.samples) if column in explained.values], dtype=int)
    if not len(rows):
        return
    samples = [evaluation.samples[row] for row in rows]
    area = np.array([chance[row] for row in rows])
    labels = evaluation.labels[rows]
    groups = np.array([-1 if explained.sample.group is None else explained.sample.group for explained in samples])
    is_first = target == evaluation.targets[0]
    findings = focus_findings(
        np.array([explained.values[column] for explained in samples]),
        area,
        labels,
        [explained.sample.sample_id for explained in samples],
        config.class_names,
        target=target,
        bound=config.bound,
        confidence=config.confidence,
        epoch=evaluation.epoch,
        step=evaluation.step,
        groups=groups,
        region=region_name,
        # Without inputs no intervention follows, and only that could show a reliance.
        with_reliance=evaluation.inputs is not None and is_first,
    )
    # The masks of members are over `rows`; an intervention needs indices into the samples of the evaluation.
    members = dict(split_into_scopes(labels, config.class_names, groups, ~np.isnan(area)))
    for finding in findings:
        if is_first or finding.scope == OVERALL:
            yield Candidate(finding, region, rows[members[finding.scope]])


class _TestedScope(NamedTuple):
    """The samples of one scope that have an annotation.

    Attributes:
        scope: The scope.
        shares: The share of each sample's relevance inside the annotation or the region.
        chance: The share that a uniform map has there.
        margins: What is tested to lie below 0: the share less what is demanded, or for a region chance less the share.
        sample_ids: The id of each sample.
    """

    scope: Scope
    shares: Float[np.ndarray, " n"]
    chance: Float[np.ndarray, " n"]
    margins: Float[np.ndarray, " n"]
    sample_ids: Sequence[int | str]


def focus_findings(
    shares: Float[np.ndarray, " n"],
    chance: Float[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    sample_ids: Sequence[int | str | np.integer],
    class_names: Sequence[str],
    *,
    target: str,
    bound: float | str = "chance",
    confidence: float = 0.95,
    min_samples: int = 5,
    epoch: int,
    step: int,
    groups: Int[np.ndarray, " n"] | None = None,
    region: str = "",
    with_reliance: bool = False,
) -> list[Finding]:
    """Find the scopes in which the share of relevance inside the annotation surely lies below what is demanded.

    All samples, each class and each group are tested. A finding needs both: the bootstrap interval of the mean share
    (for `bound="chance"`: of its paired difference to chance) lies below the bound as a whole, and the permutation test
    says so at `1 - confidence` after Holm's correction over all scopes tested here. The interval alone would be too
    rash: with eight samples in each of ten classes and maps no worse than chance it would flag some class in most
    epochs. With the correction, a class needs about eight samples to be flagged among ten.

    With `region`, the shares are those of a region that is no evidence, and findings are where they are surely above
    chance.

    Args:
        shares: The share of each sample's relevance inside its annotation, in [0, 1]; nan is left out.
        chance: The annotated share of each sample's area, in [0, 1]; nan is left out.
        labels: The class of each sample, an index into `class_names`.
        sample_ids: The id of each sample.
        class_names: The name of each class.
        target: The class that was explained, `"label"` or `"predicted"`.
        bound: The mean share that is demanded, in (0, 1), or `"chance"` for that of a uniform map.
        confidence: The level of the intervals and of the test, in (0, 1).
        min_samples: Scopes with fewer annotated samples are not tested.
        epoch: The epoch of the evidence.
        step: The global step of the evidence.
        groups: The number of each sample's group, -1 without one.
        region: The name of the region that the shares are of; "" for the annotation.
        with_reliance: Also return the scopes whose maps show nothing, as findings of the kind
            `RelianceOutsideAnnotation`, for an intervention to test.

    Returns:
        The findings, overall first, then in the order of the classes, then of the groups.

    Raises:
        ValueError: If `bound` is neither `"chance"` nor in (0, 1), the lengths differ, or a label names no class.
    """
    shares = np.asarray(shares, float)
    chance = np.asarray(chance, float)
    labels = np.asarray(labels)
    _check_arguments(shares, chance, labels, sample_ids, class_names, bound)
    demanded = chance if bound == "chance" else np.full_like(shares, bound)
    # Below 0 is bad in both: too much relevance on a region that is no evidence, too little on the annotation.
    margins = chance - shares if region else shares - demanded
    tested = [
        _TestedScope(scope, shares[member], chance[member], margins[member], _python_ids(sample_ids, member))
        for scope, member in split_into_scopes(labels, class_names, groups, ~np.isnan(shares + chance))
        if member.sum() >= min_samples
    ]
    # One family of tests: all samples, each class and each group, for this target and region.
    p_values = holm([sign_flip_test(each.margins, 0.0) for each in tested])

    def finding(each: _TestedScope, p_value: float) -> Finding:
        effect, low, high = bootstrap_interval(each.shares, confidence)
        area = float(each.chance.mean())
        surely = p_value <= 1 - confidence and bootstrap_interval(each.margins, confidence).high < 0
        # A scope with sure evidence is a finding on the map. Any other may still rely on the surroundings.
        detector = (FocusInRegion if region else FocusOutsideAnnotation) if surely else RelianceOutsideAnnotation
        # The worst have the least relevance on the annotation, or the most on a region that is no evidence.
        worst = np.argsort(-each.shares if region else each.shares, kind="stable")[:MAX_WORST_SAMPLES].tolist()
        return Finding(
            kind=detector.kind,
            title=detector.title,
            scope=each.scope,
            where=region or "outside the annotation",
            target=target,
            relevance=Evidence(effect, (low, high), area, float(p_value), len(each.shares)),
            confidence=confidence,
            bound=None if region else area if bound == "chance" else float(bound),
            worst_samples=tuple(each.sample_ids[i] for i in worst),
            epoch=epoch,
            step=step,
            first_epoch=epoch,
        )

    findings = [finding(each, p_value) for each, p_value in zip(tested, p_values, strict=True)]
    reliance_too = with_reliance and not region
    return [each for each in findings if each.kind != RelianceOutsideAnnotation.kind or reliance_too]


def _python_ids(sample_ids: Sequence[int | str | np.integer], member: np.ndarray) -> list[int | str]:
    """Return the ids of the members, with Python's numbers for numpy's, which JSON does not know."""
    ids = (sample_ids[i] for i in np.flatnonzero(member).tolist())
    return [sample_id.item() if isinstance(sample_id, np.generic) else sample_id for sample_id in ids]


def _check_arguments(
    shares: np.ndarray,
    chance: np.ndarray,
    labels: np.ndarray,
    sample_ids: Sequence[int | str | np.integer],
    class_names: Sequence[str],
    bound: float | str,
) -> None:
    if bound != "chance" and not (isinstance(bound, int | float) and 0 < bound < 1):
        raise ValueError(f"bound must be 'chance' or a share between 0 and 1, not {bound!r}")
    lengths = [len(shares), len(chance), len(labels), len(sample_ids)]
    if len(set(lengths)) > 1:
        raise ValueError(f"shares, chance, labels and sample_ids differ in length: {', '.join(map(str, lengths))}")
    if labels.size and (labels.min() < 0 or labels.max() >= len(class_names)):
        raise ValueError(
            f"labels from {labels.min()} to {labels.max()} do not all name one of {len(class_names)} classes"
        )


register_detector(FocusOutsideAnnotation())
register_detector(RelianceOutsideAnnotation())
register_detector(FocusInRegion())
