"""What the maps of an evaluation make one suspect, and which region an intervention shall change to judge it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from lrptrain.batch import IMAGES, Sample
from lrptrain.findings import Evidence, Finding, bootstrap_interval, focus_findings
from lrptrain.findings.clusters import explained_by_class, relevance_clusters
from lrptrain.findings.finding import CLUSTER, OVERALL, POSITION, TOKEN
from lrptrain.findings.positions import describe, fixed_positions
from lrptrain.findings.scopes import scopes
from lrptrain.findings.tokens import ReadText, suspicious_tokens
from lrptrain.intervention import Region
from lrptrain.intervention.regions import pixels
from lrptrain.monitor.evaluate import Scored
from lrptrain.monitor.summary import FOCUS, targets_of

LEAST_EXPLAINED, SURE = 0.15, 0.01
"""The picture in a cluster's region counts as planted if the predicted class explains this share of its variance, with
this p-value."""
WORST = 5


class Suspect(NamedTuple):
    """A finding to be judged.

    Attributes:
        finding: As relevance has it.
        region: To be changed.
        rows: In these samples, indices into what was scored.
    """

    finding: Finding
    region: Region
    rows: Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Terms:
    """On which terms something is suspected.

    Attributes:
        class_names: Name of each class.
        name_tokens: Token ids to token strings.
        bound: See `focus_findings`.
        confidence: Of intervals and findings.
        epoch: Of the evidence.
        step: Global step of the evidence.
        region_names: Of the named regions; the first is the evidence.
    """

    class_names: Sequence[str]
    name_tokens: Callable[[list[int]], list[str]]
    bound: float | str = "chance"
    confidence: float = 0.95
    epoch: int = 0
    step: int = 0
    region_names: Sequence[str] = ()


def suspects(scored: Sequence[Scored], terms: Terms, samples: Sequence[Sample] | None = None) -> list[Suspect]:
    """All that the maps make one suspect.

    Args:
        scored: The whole sample.
        terms: On which terms.
        samples: The inputs of `scored`, if there will be an intervention. Then scopes whose maps show nothing are
            among the suspects, too, and clusters of maps where no sample has an annotation.
    """
    found = list(_focus(scored, terms, samples is not None))
    if all(one.grid == scored[0].grid for one in scored) and scored[0].grid is not None:
        found += _positions(scored, terms)
        if samples is not None and all(one.inside is None for one in scored):
            found += _clusters(scored, terms, samples)
    elif all(one.words is not None for one in scored):
        found += _tokens(scored, terms)
    return found


def _focus(scored: Sequence[Scored], terms: Terms, unsuspected: bool) -> Iterator[Suspect]:
    """Per scope for the first target, overall for the others.

    Maps for the predicted class differ from those for the label in misread samples only, so that telling each class
    twice would say little. Samples without a label belong to the class that was predicted.
    """
    for place, target in enumerate(targets_of(scored)):
        regions = [("", FOCUS, Region("outside"))]
        named = enumerate(terms.region_names)
        regions += [(name, f"region/{name}", Region("named", i)) for i, name in named if i > 0]
        for name, measure, region in regions:
            column = f"{target}/{measure}"
            rows = np.array([row for row, one in enumerate(scored) if column in one.values], dtype=int)
            if not len(rows):
                continue
            chosen = [scored[row] for row in rows]
            labels, groups = _labels(chosen), _groups(chosen)
            chance = [one.areas.get(name, np.nan) if name else one.chance for one in chosen]
            found = focus_findings(
                np.array([one.values[column] for one in chosen]),
                np.array(chance),
                labels,
                [one.sample.sample_id for one in chosen],
                terms.class_names,
                target=target,
                bound=terms.bound,
                confidence=terms.confidence,
                epoch=terms.epoch,
                step=terms.step,
                groups=groups,
                region=name,
                unsuspected=unsuspected and place == 0,
            )
            present = ~np.isnan(np.array(chance))
            member = {scope.name: scope.member for scope in scopes(labels, terms.class_names, groups, present)}
            for finding in found:
                if place == 0 or finding.scope == OVERALL:
                    yield Suspect(finding, region, rows[member[finding.scope]])


def _positions(scored: Sequence[Scored], terms: Terms) -> Iterator[Suspect]:
    """Fixed positions, and as their samples those in which no evidence lies there."""
    grid, shares = scored[0].grid, _shares(scored)
    assert grid is not None
    inside = np.array([np.zeros(shares.shape[1], bool) if one.inside is None else one.inside for one in scored])
    outside = shares * ~inside
    within = scopes(_labels(scored), terms.class_names)
    for place in fixed_positions(outside, grid, within, terms.confidence):
        rows = np.flatnonzero(place.scope.member & ~inside[:, list(place.positions)].any(1))
        held = shares[rows][:, list(place.positions)].sum(1)
        reference = len(place.positions) / shares.shape[1]
        finding = _finding(scored, terms, POSITION, place.scope.name, rows, held, reference, place.p_value)
        region = Region("patches", place.positions)
        yield Suspect(finding(describe(place.positions, grid)), region, rows)


def _clusters(scored: Sequence[Scored], terms: Terms, samples: Sequence[Sample]) -> Iterator[Suspect]:
    """Clusters whose members share a region in which each predicted class has its own picture."""
    grid, shares = scored[0].grid, _shares(scored)
    assert grid is not None
    predicted = np.array([one.predicted for one in scored])
    for cluster in relevance_clusters(shares):
        contents = _contents(samples, Region("patches", cluster.positions), grid)
        explained = None if contents is None else explained_by_class(contents, predicted)
        if explained is None or not (explained.share >= LEAST_EXPLAINED and explained.p_value <= SURE):
            continue
        reference = len(cluster.positions) / shares.shape[1]
        finding = _finding(scored, terms, CLUSTER, OVERALL, cluster.members, cluster.shares, reference, float("nan"))
        where = f"{describe(cluster.positions, grid)} of {len(cluster.members)} images that are read alike"
        yield Suspect(finding(where), Region("patches", cluster.positions), cluster.members)


def _tokens(scored: Sequence[Scored], terms: Terms) -> Iterator[Suspect]:
    shares = [_positive(one) for one in scored]
    content = [one.words >= 0 for one in scored if one.words is not None]
    texts = [
        ReadText(
            ids=one.words[here],
            shares=share[here] / max(share[here].sum(), 1e-12),
            inside=None if one.inside is None else one.inside[here],
            predicted=one.predicted,
        )
        for one, share, here in zip(scored, shares, content, strict=True)
        if one.words is not None
    ]
    for token in suspicious_tokens(texts, terms.confidence):
        if token.is_position:
            where = _ordinal(token.what)
            region, scope = Region("place", token.what), OVERALL
        else:
            where = f"the token {terms.name_tokens([token.what])[0].strip()!r}"
            region, scope = Region("token", token.what), terms.class_names[token.predicted]
        reference = float(token.expected.mean())
        finding = _finding(scored, terms, TOKEN, scope, token.rows, token.shares, reference, token.p_value)
        yield Suspect(finding(where), region, token.rows)


def _finding(
    scored: Sequence[Scored],
    terms: Terms,
    kind: str,
    scope: str,
    rows: Int[np.ndarray, " n"],
    shares: Float[np.ndarray, " n"],
    reference: float,
    p_value: float,
) -> Callable[[str], Finding]:
    """A finding on high shares of relevance, ready but for the words that say where."""
    mean, low, high = bootstrap_interval(shares, terms.confidence)
    worst = [scored[rows[i]].sample.sample_id for i in np.argsort(-shares, kind="stable")[:WORST]]
    return lambda where: Finding(
        kind=kind,
        scope=scope,
        where=where,
        target=targets_of(scored)[0],
        relevance=Evidence(mean, (low, high), reference, p_value, len(rows)),
        confidence=terms.confidence,
        worst_samples=tuple(worst),
        epoch=terms.epoch,
        step=terms.step,
        first_epoch=terms.epoch,
    )


def _shares(scored: Sequence[Scored]) -> Float[np.ndarray, "n tokens"]:
    """Positive relevance of every map for the first target, summing to 1; nan where there is none."""
    positive = np.stack([_positive(one) for one in scored])
    total = positive.sum(1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1), np.nan)


def _positive(one: Scored) -> Float[np.ndarray, " tokens"]:
    first = one.maps[min(one.maps)]
    return np.nan_to_num(np.maximum(first.numpy(), 0.0))


def _labels(scored: Sequence[Scored]) -> Int[np.ndarray, " n"]:
    return np.array([one.sample.label if one.sample.label >= 0 else one.predicted for one in scored])


def _groups(scored: Sequence[Scored]) -> Int[np.ndarray, " n"]:
    return np.array([-1 if one.sample.group is None else one.sample.group for one in scored])


def _contents(samples: Sequence[Sample], region: Region, grid: tuple[int, int]) -> Float[np.ndarray, "n values"] | None:
    """The pixels of a region; None of images that differ in size."""
    images = [next(sample.tensors[name] for name in IMAGES if name in sample.tensors) for sample in samples]
    if len({image.shape for image in images}) > 1:
        return None
    stacked = torch.stack(images).float()
    here = pixels(region, {"image": stacked[:1]}, grid)[0]
    return stacked[:, :, here].flatten(1).numpy()


def _ordinal(place: int) -> str:
    """0 the first token, -1 the last."""
    side, number = ("first", place) if place >= 0 else ("last", -1 - place)
    return f"the {side} token" if number == 0 else f"the {side} token but {number}"
