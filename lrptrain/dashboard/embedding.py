"""The map of maps: every sample a point, near those whose relevance lies alike, with the clusters that they form.

The idea is that of spectral relevance analysis (Lapuschkin et al. 2019, "Unmasking Clever Hans predictors") and of
ViRelAy (Anders et al. 2021): a way of reading, such as by a tag in the corner, is a cluster of maps.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lrptrain.dashboard.maps import about_sample, map_columns, packed
from lrptrain.dashboard.samples import evaluations, stamped
from lrptrain.extras import require
from lrptrain.loggers.tables import arrow_errors

MIN_CLUSTERED_SAMPLES = 16
"""Fewer maps are not clustered."""
MAX_CLUSTERS = 8
NEIGHBOURS = 10
"""The number of nearest maps, itself included, that a map is connected with in the graph."""
MOST_MAPS = 1000
"""As many maps are placed, evenly drawn: the time goes with the square of their number, 5 s for 1000."""
MOST_WORDS = 2000
"""As many words tell texts apart, those with the most relevance."""


def read_embedding(folder: Path, name: str, target: str) -> dict[str, Any]:
    """Place the maps of an evaluation on a plane.

    Images lie near each other whose relevance lies at the same places; texts, whose relevance lies on the same words.

    Args:
        folder: Folder of the run.
        name: Name of the evaluation.
        target: Whose maps, such as `label`.

    Returns:
        `ids` of the samples, their places `x` and `y` in [0, 1], and `cluster`, the number of each one's cluster, 0 the
        largest; `clusters`, with `size`, and for images `map` (their mean; see `maps.packed`) and `grid`, for texts
        `words`; `maps`, how many there are, also of samples that were not drawn; and `empty`, why there is nothing to
        see, or "".
    """
    path = evaluations(folder).get(name)
    if path is None:
        return _nothing("There is no such evaluation.", 0)
    try:
        return _embedding(folder, *stamped(path), target)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return _nothing(f"{path.name} cannot be read: {error}", 0)


def _nothing(reason: str, count: int) -> dict[str, Any]:
    return {"ids": [], "x": [], "y": [], "cluster": [], "clusters": [], "maps": count, "empty": reason}


# As in `maps`, a table that was replaced is another key of the cache.
@lru_cache(maxsize=16)
@arrow_errors
def _embedding(folder: Path, path: Path, changed: int, size: int, target: str) -> dict[str, Any]:
    rows, columns = map_columns(path, changed, size)
    if target not in columns:
        return _nothing(f"There are maps of all samples for {_listed(columns)} only.", 0)
    every = {sample_id: columns[target][row].values for sample_id, row in rows.items()}
    with_map = [sample_id for sample_id, values in every.items() if values is not None and len(values)]
    maps = {sample_id: every[sample_id].to_numpy(zero_copy_only=False).astype(float) for sample_id in _evenly(with_map)}
    about = {sample_id: about_sample(folder, sample_id, [], len(values)) for sample_id, values in maps.items()}
    ids, shares, vocabulary = _comparable(maps, about)
    if len(ids) < MIN_CLUSTERED_SAMPLES:
        reason = f"At least {MIN_CLUSTERED_SAMPLES} maps that speak for the class are needed: here are {len(ids)}."
        return _nothing(f"{reason} A monitor with a larger max_samples has more.", len(with_map))
    with require("threadpoolctl", "monitor").threadpool_limits(1):  # sums in one order: the same map every time
        places = place_maps(shares)
        clusters = _largest_first(spectral_labels(shares, seed=0))
    grid = about[ids[0]]["grid"] if not vocabulary else None
    return {
        "ids": ids,
        "x": places[:, 0].round(4).tolist(),
        "y": places[:, 1].round(4).tolist(),
        "cluster": clusters.tolist(),
        "clusters": [_about_cluster(shares[clusters == i], vocabulary, grid) for i in range(clusters.max() + 1)],
        "maps": len(with_map),
        "empty": "",
    }


def _comparable(
    maps: dict[str, Float[np.ndarray, " tokens"]], about: dict[str, dict[str, Any]]
) -> tuple[list[str], Float[np.ndarray, "n values"], list[str]]:
    """Return the ids of samples that can be compared, where their relevance lies, and of texts the words.

    Texts are compared by their words; images, by the places of the grid that most of them have. Samples without
    relevance that speaks for the class are left out.
    """
    words = {
        sample_id: word_relevance(maps[sample_id], entry["words"])
        for sample_id, entry in about.items()
        if entry["tokens"] is not None
    }
    if words:
        vocabulary = _most_relevant(words.values())
        rows = {sample_id: [each.get(word, 0.0) for word in vocabulary] for sample_id, each in words.items()}
    else:
        vocabulary = []
        grids = Counter(tuple(entry["grid"]) for entry in about.values() if entry["grid"] is not None)
        usual = list(grids.most_common(1)[0][0]) if grids else None
        rows = {i: positive(maps[i]).tolist() for i, entry in about.items() if usual and entry["grid"] == usual}
    sums = {sample_id: sum(row) for sample_id, row in rows.items()}
    ids = [sample_id for sample_id in rows if sums[sample_id] > 0]
    # [n, values] over [n, 1]: every row has a sum of 1, however strong its map is.
    shares = np.array([rows[sample_id] for sample_id in ids]) / np.array([[sums[sample_id]] for sample_id in ids])
    return ids, shares, vocabulary


def positive(values: Float[np.ndarray, " tokens"]) -> Float[np.ndarray, " tokens"]:
    """The relevance that speaks for the class; what is not finite counts as 0."""
    return np.nan_to_num(values, posinf=0.0, neginf=0.0).clip(0)


def word_relevance(values: Float[np.ndarray, " tokens"], words: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The relevance that speaks for the class by word, in all of its places together.

    Args:
        values: Relevance of each token.
        words: Of the text; see `maps.about_sample`. That of a word is the sum over its pieces; upper and lower case
            count as the same word, and what is not scored does not count.
    """
    finite = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    relevance: dict[str, float] = {}
    for word in words:
        if word["scored"]:
            name = word["text"].casefold()
            relevance[name] = relevance.get(name, 0.0) + max(0.0, float(finite[list(word["places"])].sum()))
    return relevance


def _most_relevant(texts: Iterable[dict[str, float]]) -> list[str]:
    """The words with the largest shares of the texts' relevance, in the order of letters."""
    total: dict[str, float] = {}
    for each in texts:
        amount = sum(each.values()) or 1.0
        for word, value in each.items():
            total[word] = total.get(word, 0.0) + value / amount
    return sorted(sorted(total, key=lambda word: (-total[word], word))[:MOST_WORDS])


def place_maps(shares: Float[np.ndarray, "n values"]) -> Float[np.ndarray, "n 2"]:
    """Place maps on a plane, in [0, 1] and centred, so that neighbours stay neighbours: t-SNE (van der Maaten 2008).

    It starts from the principal components, so that no chance is in it. The distance of two maps is Hellinger's.

    Args:
        shares: Where the relevance of each sample lies, of sum 1; at least four.
    """
    # The square roots make differences between small shares count, too.
    roots = np.sqrt(shares)
    if np.ptp(roots, axis=0).max() < 1e-9:  # all maps are alike: there are no neighbours to tell from others
        return np.full((len(shares), 2), 0.5)
    tsne = require("sklearn.manifold", "dashboard").TSNE
    # It looks at three times as many neighbours as the perplexity, and a map has only n - 1 of them.
    placing = tsne(init="pca", perplexity=min(30.0, (len(shares) - 1) / 3), max_iter=500, random_state=0)
    places = placing.fit_transform(roots).astype(float)
    # One scale for both axes: distances across and along mean the same.
    low = places.min(0)
    high = places.max(0)
    return 0.5 + (places - (low + high) / 2) / max((high - low).max(), 1e-12)


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


def _evenly(ids: list[str]) -> list[str]:
    """At most `MOST_MAPS` ids, evenly spread over the table, whose order may be that of the classes."""
    if len(ids) <= MOST_MAPS:
        return ids
    return [ids[place] for place in np.linspace(0, len(ids) - 1, MOST_MAPS).round().astype(int)]


def _largest_first(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Number clusters anew, the largest first; of equal ones, the one whose first member comes first."""
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    # e.g. labels 2 0 0 2 2 1: clusters 0, 1 and 2 have 2, 1 and 3 members, the order is 2 0 1, and the ranks of 0, 1
    # and 2 are 1, 2 and 0, so that the labels become 0 1 1 0 0 2.
    order = np.lexsort((first, -counts))
    rank = np.empty(len(names), dtype=int)
    rank[order] = np.arange(len(names))
    return rank[np.searchsorted(names, labels)]


def _about_cluster(
    shares: Float[np.ndarray, "members values"], vocabulary: list[str], grid: list[int] | None
) -> dict[str, Any]:
    """What the members of a cluster have in common: the mean of their maps, or the words with most of the relevance."""
    mean = shares.mean(0)
    if not vocabulary:
        return {"size": len(shares), "map": packed(mean), "grid": grid}
    top = [place for place in np.argsort(-mean, kind="stable")[:5] if mean[place] > 0]
    return {"size": len(shares), "words": [vocabulary[place] for place in top]}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
