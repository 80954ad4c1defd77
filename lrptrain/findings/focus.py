"""Does the relevance lie on the annotation? One test overall and one per class."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.findings.finding import OVERALL, Finding
from lrptrain.findings.statistics import bootstrap_interval, holm, share_test

KIND = "focus_outside_annotation"
WORST = 5


class _Group(NamedTuple):
    """The samples of one scope."""

    scope: str
    share: Float[np.ndarray, " n"]
    chance: Float[np.ndarray, " n"]
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
) -> list[Finding]:
    """Where the share of relevance inside the annotation is surely below what is demanded.

    Tested overall and for each class. A finding needs both: the bootstrap interval of the mean share (for
    `bound="chance"`: of its paired difference to chance) lies wholly below the bound, and the permutation test says so
    at `1 - confidence` after Holm's correction over all scopes tested here. The interval alone would be too rash: with
    eight samples in each of ten classes and maps no worse than chance it would flag some class in most epochs. With
    the correction, a class needs about eight samples to be flagged among ten.

    Args:
        shares: Share of each sample's relevance that lies inside its annotation, in [0, 1]; nan is left out.
        chance: The annotated share of each sample's area, in [0, 1]; nan is left out.
        labels: Class of each sample, an index into `class_names`.
        sample_ids: Name of each sample.
        class_names: Name of each class.
        target: Which class was explained, `"label"` or `"predicted"`.
        bound: The mean share that is demanded, in (0, 1), or `"chance"`: at least that of a uniform map.
        confidence: Of the intervals and of the test.
        min_samples: Scopes with fewer annotated samples are not tested.
        epoch: Of the evidence.
        step: Global step of the evidence.

    Returns:
        The findings, overall first, then in the order of the classes.

    Raises:
        ValueError: If `bound` is neither `"chance"` nor in (0, 1), the lengths differ, or a label names no class.
    """
    shares, chance, labels = np.asarray(shares, float), np.asarray(chance, float), np.asarray(labels)
    _check(shares, chance, labels, sample_ids, class_names, bound)
    groups = [g for g in _groups(shares, chance, labels, sample_ids, class_names) if len(g.share) >= min_samples]
    demanded = [group.chance if bound == "chance" else np.full_like(group.share, bound) for group in groups]
    p_values = holm([share_test(group.share, needed) for group, needed in zip(groups, demanded, strict=True)])

    def finding(group: _Group, p_value: float) -> Finding:
        effect, low, high = bootstrap_interval(group.share, confidence)
        area = float(group.chance.mean())
        worst = np.argsort(group.share, kind="stable")[:WORST].tolist()
        return Finding(
            kind=KIND,
            scope=group.scope,
            target=target,
            effect=effect,
            interval=(low, high),
            confidence=confidence,
            chance=area,
            bound=area if bound == "chance" else float(bound),
            p_value=float(p_value),
            samples=len(group.share),
            worst_samples=tuple(group.sample_ids[i] for i in worst),
            epoch=epoch,
            step=step,
            first_epoch=epoch,
        )

    return [
        finding(group, p_value)
        for group, needed, p_value in zip(groups, demanded, p_values, strict=True)
        if p_value <= 1 - confidence and bootstrap_interval(group.share - needed, confidence).high < 0
    ]


def merge_findings(previous: Iterable[Finding], current: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Carry over since when each finding has stood.

    Two findings are the same when kind, scope and target agree.

    Args:
        previous: The findings of the evaluation before.
        current: The findings of this evaluation.

    Returns:
        All current findings, with `first_epoch` of the previous ones, and those among them that are new; in the order
        of `current`.
    """
    known = {finding.identity: finding.first_epoch for finding in previous}
    current = list(current)
    merged = [replace(finding, first_epoch=known.get(finding.identity, finding.first_epoch)) for finding in current]
    return merged, [finding for finding in merged if finding.identity not in known]


def _groups(
    shares: Float[np.ndarray, " n"],
    chance: Float[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    sample_ids: Sequence[int | str | np.integer],
    class_names: Sequence[str],
) -> list[_Group]:
    """All annotated samples, then those of each class that has any."""
    present = ~np.isnan(shares + chance)

    def group(scope: str, member: Bool[np.ndarray, " n"]) -> _Group:
        ids = [_plain(sample_ids[i]) for i in np.flatnonzero(member).tolist()]
        return _Group(scope, shares[member], chance[member], ids)

    classes = np.unique(labels[present])
    return [group(OVERALL, present), *(group(class_names[c], present & (labels == c)) for c in classes)]


def _plain(sample_id: int | str | np.integer) -> int | str:
    """Numpy's scalars as Python's, which JSON knows."""
    return sample_id.item() if isinstance(sample_id, np.generic) else sample_id


def _check(
    shares: np.ndarray,
    chance: np.ndarray,
    labels: np.ndarray,
    sample_ids: Sequence[int | str | np.integer],
    class_names: Sequence[str],
    bound: float | str,
) -> None:
    if bound != "chance" and not (isinstance(bound, int | float) and 0 < bound < 1):
        raise ValueError(f"bound must be 'chance' or a share between 0 and 1, not {bound!r}")
    lengths = {len(shares), len(chance), len(labels), len(sample_ids)}
    if len(lengths) > 1:
        raise ValueError(
            f"shares, chance, labels and sample_ids differ in length: {len(shares)}, {len(chance)}, {len(labels)}, "
            f"{len(sample_ids)}"
        )
    if labels.size and (labels.min() < 0 or labels.max() >= len(class_names)):
        raise ValueError(
            f"labels from {labels.min()} to {labels.max()} do not all name one of {len(class_names)} classes"
        )
