"""Clusters of relevance maps that are alike, without any annotation: spectral relevance analysis."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.clustering import MIN_CLUSTERED_SAMPLES, spectral_labels
from lrptrain.findings.content import is_same_picture, is_surely_planted, place_contents
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.positions import describe, lies_in_the_middle, part_of_image
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.intervention import Region

MIN_CLUSTER_MEMBERS = 8
"""A smaller cluster is left out."""
PEAK_SHARE = 0.5
MIN_PEAK_RATIO = 2.0
"""A cluster's region is where its mean map has a share PEAK_SHARE of its maximum, and this many times a uniform map."""
MAX_CLUSTER_AREA = 0.25
"""A larger region is nothing that members share."""
MOST_OF_THE_SAMPLE = 0.9
"""A cluster of more of the images tells none of them apart: where all are read, another kind of finding says."""
LEAST_EFFECT_IN_THE_MIDDLE = 0.3
"""The least mean change of a probability that confirms a place in the middle. Objects lie there, and taking away a part
of one moves the answer of a sound model, too: by 0.12 in clean runs of pets, and of textures on photographs."""


class RelevanceCluster(Detector):
    """Images that are read at the same small region, in which each predicted class has its own picture."""

    kind = "relevance_cluster"
    title = "The relevance of these samples is alike"
    order = 50
    seen_at_places = True
    verb = "reads"

    def place(self, finding: Finding) -> str:
        """Return which part of which images the model reads, such as `the border of 12 images with similar maps`."""
        # Not "the image's border of 12 images": there are several.
        return part_of_image(finding.where).replace("the image's ", "the ", 1)

    def least_effect_of(self, finding: Finding) -> float:
        """Return what a place takes that may be a part of the object; of others the configuration demands enough."""
        return LEAST_EFFECT_IN_THE_MIDDLE if finding.may_be_evidence else self.least_effect

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return clusters with something planted in their region, if no sample has an annotation."""
        grid = evaluation.grid
        # With annotations, the other detectors can say what a map should show, and have more power.
        annotated = any(explained.annotated is not None for explained in evaluation.samples)
        if grid is None or evaluation.inputs is None or annotated:
            return
        shares = evaluation.shares
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        marked = evaluation.marked_patches
        for cluster in relevance_clusters(shares):
            region = Region("patches", cluster.positions)
            # Of all images, not of the members: `explained_by_class` says why.
            contents = place_contents(evaluation.inputs, region, grid)
            if contents is None or not is_surely_planted(contents.flatten(1).numpy(), predicted):
                continue
            # Of images that are all centred on their object, its class explains as much of the middle as of a mark.
            doubtful = lies_in_the_middle(cluster.positions, grid)
            if doubtful and not is_same_picture(contents.numpy(), predicted):
                continue
            if marked is not None and not marked.any_of(cluster.positions):
                continue
            finding = high_share_finding(
                self,
                evaluation,
                config,
                OVERALL,
                f"{describe(cluster.positions, grid)} of {len(cluster.members)} images with similar maps",
                cluster.members,
                cluster.shares,
                reference=len(cluster.positions) / shares.shape[1],
            )
            yield Candidate(replace(finding, may_be_evidence=doubtful), region, cluster.members)


class Cluster(NamedTuple):
    """Images whose relevance maps are alike.

    Attributes:
        members: The rows of their maps.
        positions: The tokens at the peak of their mean map.
        shares: The share of each member's relevance at these tokens, in [0, 1].
    """

    members: Int[np.ndarray, " n"]
    positions: tuple[int, ...]
    shares: Float[np.ndarray, " n"]


def relevance_clusters(shares: Float[np.ndarray, "n tokens"], seed: int = 0) -> list[Cluster]:
    """Find clusters of maps whose members share a small region, the largest first.

    Spectral clustering of the maps on their nearest neighbours, into as many clusters as the largest gap between the
    eigenvalues of the graph's Laplacian says (Lapuschkin et al. 2019, "Unmasking Clever Hans predictors").

    Args:
        shares: The share of each image's positive relevance at each token; rows of nan or 0 are left out.
        seed: The seed of k-means.
    """
    rows = np.flatnonzero(np.isfinite(shares).all(1) & (np.nan_to_num(shares).sum(1) > 0))
    if len(rows) < MIN_CLUSTERED_SAMPLES:
        return []
    labels = spectral_labels(shares[rows], seed)
    clusters = [_cluster(rows[labels == label], shares) for label in np.unique(labels)]
    most = MAX_CLUSTER_AREA * shares.shape[1]
    members = range(MIN_CLUSTER_MEMBERS, int(MOST_OF_THE_SAMPLE * len(rows)) + 1)
    small = [c for c in clusters if len(c.members) in members and 0 < len(c.positions) <= most]
    return sorted(small, key=lambda cluster: -len(cluster.members))


def _cluster(members: Int[np.ndarray, " n"], shares: Float[np.ndarray, "m tokens"]) -> Cluster:
    mean = shares[members].mean(0)
    positions = tuple(np.flatnonzero(mean >= max(PEAK_SHARE * mean.max(), MIN_PEAK_RATIO / len(mean))).tolist())
    return Cluster(members, positions, shares[members][:, list(positions)].sum(1))


register_detector(RelevanceCluster())
