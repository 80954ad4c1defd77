"""Groups of relevance maps that are alike, without any annotation: spectral relevance analysis."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require

LEAST_SAMPLES = 16
LEAST_MEMBERS = 8
MOST_CLUSTERS, NEIGHBOURS = 8, 10
PEAK, LEAST_RATIO = 0.5, 2.0
"""A cluster's region is where its mean map has this share of its maximum, and this many times a uniform map."""
MOST_AREA = 0.25
"""A larger region is nothing that members share."""
DRAWS = 199


class Cluster(NamedTuple):
    """Images that are read alike.

    Attributes:
        members: Rows of the maps.
        positions: Tokens at the peak of their mean map.
        shares: Share of each member's relevance there.
    """

    members: Int[np.ndarray, " n"]
    positions: tuple[int, ...]
    shares: Float[np.ndarray, " n"]


class Explained(NamedTuple):
    """What the class says about a region's content.

    Attributes:
        share: Of the variance, adjusted for the number of classes (epsilon squared, Kelley 1935), so that it is 0 on
            average where class says nothing; at most 1; nan with one class, or where there is no variance.
        p_value: Of a permutation test.
    """

    share: float
    p_value: float


def relevance_clusters(shares: Float[np.ndarray, "n tokens"], seed: int = 0) -> list[Cluster]:
    """Clusters of maps whose members share a small region, the largest first.

    Spectral clustering of the maps on their nearest neighbours, into as many clusters as the largest gap between the
    eigenvalues of the graph's Laplacian says (Lapuschkin et al. 2019, "Unmasking Clever Hans predictors").

    Args:
        shares: Share of each image's positive relevance at each token.
        seed: Of the clustering.
    """
    rows = np.flatnonzero(np.isfinite(shares).all(1) & (np.nan_to_num(shares).sum(1) > 0))
    if len(rows) < LEAST_SAMPLES:
        return []
    labels = _spectral(shares[rows], seed)
    found = [_cluster(rows[labels == label], shares) for label in np.unique(labels)]
    most = MOST_AREA * shares.shape[1]
    small = [c for c in found if len(c.members) >= LEAST_MEMBERS and 0 < len(c.positions) <= most]
    return sorted(small, key=lambda cluster: -len(cluster.members))


def _spectral(maps: Float[np.ndarray, "n tokens"], seed: int) -> Int[np.ndarray, " n"]:
    """Ng, Jordan & Weiss 2001: k-means on the rows of the first eigenvectors, each of length 1."""
    neighbours = require("sklearn.neighbors", "monitor").kneighbors_graph
    kmeans = require("sklearn.cluster", "monitor").KMeans
    laplacian = require("scipy.sparse.csgraph", "monitor").laplacian
    near = neighbours(maps, n_neighbors=min(NEIGHBOURS, len(maps) - 1), include_self=True).toarray()
    eigenvalues, vectors = np.linalg.eigh(laplacian((near + near.T) / 2, normed=True))
    count = int(np.argmax(np.diff(eigenvalues[: MOST_CLUSTERS + 1]))) + 1
    rows = vectors[:, :count]
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return kmeans(count, n_init=10, random_state=seed).fit_predict(rows)


def _cluster(members: Int[np.ndarray, " n"], shares: Float[np.ndarray, "m tokens"]) -> Cluster:
    mean = shares[members].mean(0)
    positions = tuple(np.flatnonzero(mean >= max(PEAK * mean.max(), LEAST_RATIO / len(mean))).tolist())
    return Cluster(members, positions, shares[members][:, list(positions)].sum(1))


def explained_by_class(
    contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"], seed: int = 0
) -> Explained:
    """How much of the variance of a region's content the predicted class accounts for.

    What is planted looks the same in all images of a class; an object that moves does not. An object that always lies
    in the same place does: without annotations it cannot be told from something planted. All images are to be given and
    not the members of a cluster: those were chosen by their maps, so that their objects lie alike.

    Args:
        contents: The region's pixels in every image.
        predicted: Class of each image.
        seed: Of the permutations.
    """
    classes, index = np.unique(predicted, return_inverse=True)
    n, k = len(contents), len(classes)
    centred = contents - contents.mean(0)
    products = centred @ centred.T
    total = float(np.trace(products))
    if k < 2 or n <= k or total <= 0:
        return Explained(float("nan"), float("nan"))
    together = (index[:, None] == index) / np.bincount(index)[index]
    rng = np.random.default_rng(seed)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(DRAWS))]
    between = np.array([(products[np.ix_(order, order)] * together).sum() for order in orders])
    share = 1.0 - ((total - between[0]) / (n - k)) / (total / (n - 1))
    return Explained(share, float((between >= between[0] * (1 - 1e-9)).mean()))
