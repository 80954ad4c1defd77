"""Clusters of relevance maps that are alike, without any annotation: spectral relevance analysis."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from lrptrain.batch import IMAGES, Sample
from lrptrain.findings.clustering import MIN_CLUSTERED_SAMPLES, spectral_labels
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.positions import describe, lies_in_the_middle, part_of_image
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.intervention import Region
from lrptrain.intervention.regions import pixels

MIN_CLUSTER_MEMBERS = 8
"""A smaller cluster is left out."""
PEAK_SHARE = 0.5
MIN_PEAK_RATIO = 2.0
"""A cluster's region is where its mean map has a share PEAK_SHARE of its maximum, and this many times a uniform map."""
MAX_CLUSTER_AREA = 0.25
"""A larger region is nothing that members share."""
PERMUTATIONS = 199
MIN_EXPLAINED_VARIANCE = 0.15
MAX_CONTENT_P_VALUE = 0.01
"""The content of a cluster's region counts as planted if the predicted class explains a share of at least
MIN_EXPLAINED_VARIANCE of its variance, with at most this p-value."""


class RelevanceCluster(Detector):
    """Images that are read at the same small region, in which each predicted class has its own picture."""

    kind = "relevance_cluster"
    title = "The relevance of these samples is alike"
    order = 50
    seen_at_places = True
    verb = "reads"

    def place(self, finding: Finding) -> str:
        """Return which part of which images the model reads."""
        return part_of_image(finding.where)

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return clusters with something planted in their region, if no sample has an annotation."""
        grid = evaluation.grid
        # With annotations, the other detectors can say what a map should show, and have more power.
        annotated = any(explained.annotated is not None for explained in evaluation.samples)
        if grid is None or evaluation.inputs is None or annotated:
            return
        shares = evaluation.shares
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        for cluster in relevance_clusters(shares):
            region = Region("patches", cluster.positions)
            # Of all images, not of the members: `explained_by_class` says why.
            contents = _region_pixels(evaluation.inputs, region, grid)
            if contents is None:
                continue
            explained_share, p_value = explained_by_class(contents, predicted)
            if not (explained_share >= MIN_EXPLAINED_VARIANCE and p_value <= MAX_CONTENT_P_VALUE):  # either may be nan
                continue
            finding = high_share_finding(
                self,
                evaluation,
                config,
                OVERALL,
                f"{describe(cluster.positions, grid)} of {len(cluster.members)} images that are read alike",
                cluster.members,
                cluster.shares,
                reference=len(cluster.positions) / shares.shape[1],
            )
            doubtful = lies_in_the_middle(cluster.positions, grid)
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


class ExplainedVariance(NamedTuple):
    """How much the class says about a region's content.

    Attributes:
        share: The share of the variance that the class explains, adjusted for the number of classes (epsilon squared,
            Kelley 1935), so that it is 0 on average where the class says nothing. It is at most 1, and nan with one
            class or where there is no variance.
        p_value: The p-value of a permutation test; nan where `share` is.
    """

    share: float
    p_value: float


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
    small = [c for c in clusters if len(c.members) >= MIN_CLUSTER_MEMBERS and 0 < len(c.positions) <= most]
    return sorted(small, key=lambda cluster: -len(cluster.members))


def _cluster(members: Int[np.ndarray, " n"], shares: Float[np.ndarray, "m tokens"]) -> Cluster:
    mean = shares[members].mean(0)
    positions = tuple(np.flatnonzero(mean >= max(PEAK_SHARE * mean.max(), MIN_PEAK_RATIO / len(mean))).tolist())
    return Cluster(members, positions, shares[members][:, list(positions)].sum(1))


def explained_by_class(
    contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"], seed: int = 0
) -> ExplainedVariance:
    """Measure how much of the variance of a region's content the predicted class explains.

    What is planted looks the same in all images of a class; an object that moves does not. An object that always lies
    in the same place does: without annotations it cannot be told from something planted. Pass all images, not the
    members of a cluster: those were chosen by their maps, so that their objects lie alike.

    Args:
        contents: The region's pixels in every image.
        predicted: The predicted class of each image.
        seed: The seed of the permutations.
    """
    classes, index = np.unique(predicted, return_inverse=True)
    n = len(contents)
    k = len(classes)
    centred = contents - contents.mean(0)
    # [n, n] instead of [values, values]: there are far more pixels than images. Its trace is the total sum of squares.
    products = centred @ centred.T
    total = float(np.trace(products))
    if k < 2 or n <= k or total <= 0:
        return ExplainedVariance(float("nan"), float("nan"))
    # With P[i, j] = 1 / (size of the class) for i and j of one class, trace(products P) is the sum of squares between
    # classes. Permuting the images is the same as permuting the classes, and `products` is only computed once.
    same_class = (index[:, None] == index) / np.bincount(index)[index]
    rng = np.random.default_rng(seed)
    # The observed order is one of them, so that a p-value is never 0.
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(PERMUTATIONS))]
    between = np.array([(products[np.ix_(order, order)] * same_class).sum() for order in orders])
    # Mean squares within classes over all mean squares: both estimate the same variance if the class says nothing.
    share = 1.0 - ((total - between[0]) / (n - k)) / (total / (n - 1))
    return ExplainedVariance(share, float((between >= between[0] * (1 - 1e-9)).mean()))


def _region_pixels(
    samples: Sequence[Sample], region: Region, grid: tuple[int, int]
) -> Float[np.ndarray, "n values"] | None:
    """Return the pixels of a region in every image; None if the images differ in size."""
    images = [next(sample.tensors[name] for name in IMAGES if name in sample.tensors) for sample in samples]
    if len({image.shape for image in images}) > 1:
        return None
    stacked = torch.stack(images).float()
    inside = pixels(region, {"image": stacked[:1]}, grid)[0]  # [height, width], the same in all images
    return stacked[:, :, inside].flatten(1).numpy()


register_detector(RelevanceCluster())
