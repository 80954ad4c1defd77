"""What others do to find shortcuts, in a few lines each: our implementations of the ideas, not their code.

Each gives one number per run, larger where a shortcut is likelier.
"""

import warnings

import numpy as np
from jaxtyping import Float, Int
from scipy import ndimage
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB

CLUSTERS = range(2, 9)
"""Numbers of clusters among which the largest gap of eigenvalues chooses."""
SLICES, COMPONENTS, WEIGHT, LEAST_SHARE = 10, 8, 1.0, 0.05
"""Of the slices: their number, the embedding's directions, how much class and answer count, and the smallest share."""


def image_properties(pictures: Float[np.ndarray, "n side side 3"]) -> Float[np.ndarray, "n properties"]:
    """Return what Datalab measures of images and varies here: dark, bright, blurred, empty of information, grey.

    Args:
        pictures: RGB in 0..1.
    """
    brightness = np.sqrt(pictures**2 @ np.array([0.241, 0.691, 0.068]))
    flat = brightness.reshape(len(pictures), -1)
    edges = np.stack([ndimage.laplace(each) for each in brightness]).var((1, 2))
    bins = (255 * flat.clip(0, 1)).astype(int) // 4
    counts = np.stack([np.bincount(row, minlength=64) for row in bins]) / bins.shape[1]
    entropy = -(counts * np.log2(np.where(counts > 0, counts, 1))).sum(1)
    colourful = pictures.std(3).mean((1, 2))
    return np.stack([*np.percentile(flat, (5, 99), 1), flat.mean(1), edges, entropy, colourful], 1)


def spurious_correlation(properties: Float[np.ndarray, "n properties"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how far one property tells the class: the share of the room above guessing, at most 1 (cleanlab Datalab).

    A Gaussian naive Bayes of one property after the other, cross-validated in five parts; guessing is the largest
    class. Datalab speaks of a spurious correlation from 0.7 on (its score is 1 less this, its threshold 0.3).
    """
    guessing = np.bincount(labels).max() / len(labels)
    accuracies = [cross_val_score(GaussianNB(), column[:, None], labels, cv=5).mean() for column in properties.T]
    return float((max(accuracies) - guessing) / (1 - guessing))


def spectral_purity(maps: Float[np.ndarray, "n features"], answers: Int[np.ndarray, " n"]) -> float:
    """Return how far clusters of maps go with the answers, as adjusted mutual information (SpRAy).

    Lapuschkin et al. 2019: spectral clustering of the maps, as many clusters as the largest gap between eigenvalues
    says. A model that looks at things at any place has clusters that tell nothing of its answer.

    Args:
        maps: Of the predicted class.
        answers: The predicted class; with one alone, the purity is 0.
    """
    if len(set(answers.tolist())) < 2:
        return 0.0
    likeness = cosine_similarity(maps).clip(0, 1)
    inverse = 1 / np.sqrt(likeness.sum(1).clip(1e-9))
    eigenvalues = np.sort(np.linalg.eigvalsh(np.eye(len(maps)) - inverse[:, None] * likeness * inverse))
    gaps = np.diff(eigenvalues)[CLUSTERS.start - 1 : CLUSTERS.stop - 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clusters = SpectralClustering(
            CLUSTERS.start + int(gaps.argmax()), affinity="precomputed", random_state=0
        ).fit_predict(likeness + 1e-9)
    return float(adjusted_mutual_info_score(answers, clusters))


def error_slice(
    embeddings: Float[np.ndarray, "n width"],
    labels: Int[np.ndarray, " n"],
    probabilities: Float[np.ndarray, "n classes"],
) -> float:
    """Return by how much the error rate of the worst slice exceeds the mean (Domino, Eyuboglu et al. 2022).

    A Gaussian mixture over the main directions of the embedding, the label and the answer; a slice counts from
    `LEAST_SHARE` of the samples on.
    """
    directions = PCA(COMPONENTS, random_state=0).fit_transform(embeddings)
    directions /= directions.std(0).clip(1e-9)
    truth = np.eye(probabilities.shape[1])[labels]
    features = np.concatenate([directions, np.sqrt(WEIGHT) * truth, np.sqrt(WEIGHT) * probabilities], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        slices = GaussianMixture(SLICES, covariance_type="diag", reg_covar=1e-3, random_state=0).fit_predict(features)
    wrong = probabilities.argmax(1) != labels
    rates = [wrong[slices == each].mean() for each in range(SLICES) if (slices == each).mean() >= LEAST_SHARE]
    return float(max(rates, default=wrong.mean()) - wrong.mean())
