"""Which maps are alike: spectral clustering, for findings and for the page, which must not wait for torch."""

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require

MIN_CLUSTERED_SAMPLES = 16
"""Fewer maps are not clustered."""
MAX_CLUSTERS = 8
NEIGHBOURS = 10
"""The number of nearest maps, itself included, that a map is connected with in the graph."""


def spectral_labels(maps: Float[np.ndarray, "n tokens"], seed: int) -> Int[np.ndarray, " n"]:
    """Return the cluster of every map: k-means on the rows of the first eigenvectors (Ng, Jordan & Weiss 2001).

    Args:
        maps: Maps as vectors, at least two.
        seed: The seed of k-means.
    """
    neighbours = require("sklearn.neighbors", "dashboard").kneighbors_graph
    kmeans = require("sklearn.cluster", "dashboard").KMeans
    laplacian = require("scipy.sparse.csgraph", "monitor").laplacian
    # A is near B if it is among the nearest of B, which does not make B near A: the mean of both is symmetric.
    near = neighbours(maps, n_neighbors=min(NEIGHBOURS, len(maps) - 1), include_self=True).toarray()  # [n, n], 0 or 1
    eigenvalues, vectors = np.linalg.eigh(laplacian((near + near.T) / 2, normed=True))
    # k separate clusters have k eigenvalues of 0: the largest gap says where the small ones end.
    count = int(np.argmax(np.diff(eigenvalues[: MAX_CLUSTERS + 1]))) + 1
    # [n, count]: images of one cluster point in the same direction.
    rows = vectors[:, :count]
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    labels: Int[np.ndarray, " n"] = kmeans(count, n_init=10, random_state=seed).fit_predict(rows)
    return labels
