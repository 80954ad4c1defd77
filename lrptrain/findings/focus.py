"""Does the relevance lie on the annotation, or in a named region? One test overall, one per class and per group."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.finding import FOCUS, REGION, RELIANCE, Evidence, Finding
from lrptrain.findings.scopes import scopes
from lrptrain.findings.statistics import bootstrap_interval, holm, share_test

WORST = 5


class _Group(NamedTuple):
    """The samples of one scope; `margin` is what is tested to lie below 0."""

    scope: str
    share: Float[np.ndarray, " n"]
    chance: Float[np.ndarray, " n"]
    margin: Float[np.ndarray, " n"]
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
    unsuspected: bool = False,
) -> list[Finding]:
    """Where the share of relevance inside the annotation is surely below what is demanded.

    Tested overall, for each class and for each group. A finding needs both: the bootstrap interval of the mean share
    (for `bound="chance"`: of its paired difference to chance) lies wholly below the bound, and the permutation test
    says so at `1 - confidence` after Holm's correction over all scopes tested here. The interval alone would be too
    rash: with eight samples in each of ten classes and maps no worse than chance it would flag some class in most
    epochs. With the correction, a class needs about eight samples to be flagged among ten.

    With `region`, the shares are those of a region that is no evidence, and findings are where they are surely above
    chance.

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
        groups: Number of each sample's group, -1 without one.
        region: Name of the region that the shares are of, "" for the annotation.
        unsuspected: Also return the scopes whose maps show nothing, as `"reliance_outside_annotation"`, for an
            intervention to judge.

    Returns:
        The findings, overall first, then in the order of the classes, then of the groups.

    Raises:
        ValueError: If `bound` is neither `"chance"` nor in (0, 1), the lengths differ, or a label names no class.
    """
    shares, chance, labels = np.asarray(shares, float), np.asarray(chance, float), np.asarray(labels)
    _check(shares, chance, labels, sample_ids, class_names, bound)
    needed = chance if bound == "chance" else np.full_like(shares, bound)
    margin = chance - shares if region else shares - needed
    found = scopes(labels, class_names, groups, ~np.isnan(shares + chance))
    all_groups = [
        _Group(name, shares[member], chance[member], margin[member], _ids(sample_ids, member)) for name, member in found
    ]
    tested = [group for group in all_groups if len(group.share) >= min_samples]
    p_values = holm([share_test(group.margin, 0.0) for group in tested])

    def finding(group: _Group, p_value: float) -> Finding:
        effect, low, high = bootstrap_interval(group.share, confidence)
        area = float(group.chance.mean())
        surely = p_value <= 1 - confidence and bootstrap_interval(group.margin, confidence).high < 0
        worst = np.argsort(-group.share if region else group.share, kind="stable")[:WORST].tolist()
        return Finding(
            kind=(REGION if region else FOCUS) if surely else RELIANCE,
            scope=group.scope,
            where=region or "outside the annotation",
            target=target,
            relevance=Evidence(effect, (low, high), area, float(p_value), len(group.share)),
            confidence=confidence,
            bound=None if region else area if bound == "chance" else float(bound),
            worst_samples=tuple(group.sample_ids[i] for i in worst),
            epoch=epoch,
            step=step,
            first_epoch=epoch,
        )

    everything = [finding(group, p_value) for group, p_value in zip(tested, p_values, strict=True)]
    return [one for one in everything if one.kind != RELIANCE or (unsuspected and not region)]


def _ids(sample_ids: Sequence[int | str | np.integer], member: np.ndarray) -> list[int | str]:
    """Of the members, numpy's scalars as Python's, which JSON knows."""
    ids = (sample_ids[i] for i in np.flatnonzero(member).tolist())
    return [one.item() if isinstance(one, np.generic) else one for one in ids]


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
