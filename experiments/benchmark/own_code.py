"""Rivals by their projects' own code: cleanlab's Datalab, and SpRAy by corelay.

Each gives one number per run, larger where a shortcut is likelier. They need packages of their own: `make rivals`.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from sklearn.metrics import adjusted_mutual_info_score

from experiments.benchmark.rivals import CLUSTERS

PACKAGES = ("cleanlab", "cleanvision", "datasets", "corelay")
EIGENVALUES = 32
"""Of corelay's embedding, its default; fewer where there are no more maps."""


def has_packages() -> bool:
    """Whether the packages of the rivals are installed: `make rivals`."""
    return all(find_spec(package) for package in PACKAGES)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the packages print and warn of; to import cleanlab would silence all warnings from then on."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        yield


def datalab(pictures: Float[np.ndarray, "n side side 3"], labels: Int[np.ndarray, " n"]) -> float:
    """Return 1 less the lowest of Datalab's scores of spurious correlations, over all properties of images that it has.

    Every option is Datalab's default. It speaks of a spurious correlation where a score is below 0.3, that is, where
    this number is above 0.7. A score is the error rate of telling the class by the property, divided by that of always
    guessing the largest class. For the accuracy of this guess, cleanlab 2.9.0 takes the class's index divided by the
    number of samples, about 0, so that it divides by about 1: where no property tells the class, this number is not 0
    but the accuracy of guessing.

    Args:
        pictures: RGB in 0..1; Datalab gets them in 8 bits.
        labels: Their classes.
    """
    images = [Image.fromarray(np.rint(255 * picture.clip(0, 1)).astype(np.uint8)) for picture in pictures]
    with _quiet():
        from cleanlab import Datalab
        from datasets import Dataset

        data = Dataset.from_dict({"image": images, "label": labels.tolist()})
        lab = Datalab(data, label_name="label", image_key="image", verbosity=0)
        # Datalab would open a process for every core, and has no option against it.
        with mock.patch("cleanvision.imagelab.get_max_n_jobs", return_value=1):
            lab.find_issues()
        # Datalab prints what goes wrong and goes on; without scores, this is an error.
        scores = lab.get_info("spurious_correlations")["correlations_df"]["score"]
    return float(1 - scores.min())


def spray(maps: Float[np.ndarray, "n features"], answers: Int[np.ndarray, " n"]) -> float:
    """Return how far corelay's clusters of maps go with the answers, as adjusted mutual information.

    The clustering alone is corelay's: the distances, neighbours, Laplacian and 32 eigenvectors that its pipeline of
    SpRAy has by default, and k-means, of maps that add up to 1 and for several numbers of clusters as in its examples.
    As a user of SpRAy does (Lapuschkin et al. 2019), the clustering is taken whose number the largest gap between the
    eigenvalues suggests. How far it goes with the answers is measured as in `rivals.spectral_purity`.

    SpRAy proper is run class by class, for a person to look at the clusters. Clusters within one class cannot say
    whether the model looks elsewhere in another class, so all maps are clustered at once. The gap within the classes
    would be no better number: in the nine runs of `cases.development` it was smaller with a shortcut than without, of
    images as of texts.

    Args:
        maps: Of the predicted class, nowhere negative; more than the largest number of clusters.
        answers: The predicted class; with one alone, the number is 0.
    """
    if len(set(answers.tolist())) < 2:
        return 0.0
    eigenvalues, clusterings = _clustered(maps)
    gaps = np.diff(np.sort(eigenvalues))[CLUSTERS.start - 1 : CLUSTERS.stop - 1]
    return float(adjusted_mutual_info_score(answers, clusterings[int(gaps.argmax())]))


def _clustered(maps: Float[np.ndarray, "n features"]) -> tuple[Float[np.ndarray, " k"], tuple[Int[np.ndarray, " n"]]]:
    """Return the eigenvalues of corelay's Laplacian, and a clustering for each number of clusters."""
    with _quiet():
        from corelay.pipeline.spectral import SpectralClustering
        from corelay.processor.clustering import KMeans
        from corelay.processor.embedding import EigenDecomposition
        from corelay.processor.flow import Parallel

        # What would be random is not: the vector that the decomposition starts from, and the means.
        start: dict[str, Any] = {"v0": np.random.default_rng(0).normal(size=len(maps)), "rng": 0}
        clusterings = [KMeans(n_clusters=number, kwargs={"random_state": 0}) for number in CLUSTERS]
        pipeline = SpectralClustering(
            preprocessing=_shares,
            embedding=EigenDecomposition(n_eigval=min(EIGENVALUES, len(maps) - 1), kwargs=start, is_output=True),
            clustering=Parallel(clusterings, broadcast=True, is_output=True),
        )
        (eigenvalues, _), labels = pipeline(maps)
    return eigenvalues, labels


def _shares(maps: Float[np.ndarray, "n features"]) -> Float[np.ndarray, "n features"]:
    """Return maps that add up to 1; one of zeros stays as it is."""
    return maps / maps.sum(1, keepdims=True).clip(1e-12)
