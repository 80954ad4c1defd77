"""What a place of images holds: is it the same picture within a predicted class, as what is planted is?"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch import Sample
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of, pixels

PERMUTATIONS = 199
MIN_EXPLAINED_VARIANCE = 0.15
MAX_CONTENT_P_VALUE = 0.01
"""The content of a place counts as planted if the predicted class explains a share of at least
MIN_EXPLAINED_VARIANCE of its variance, with at most this p-value."""
SURE_EXPLAINED_VARIANCE = 0.1
"""It counts as surely planted if even the lower end of the share's interval reaches this. In the middle of pets,
photographs and things on textures, of 32 to 128 images with nothing planted, it did in none of 270 places, while 12
seemed planted by the bounds above; and with a dot of each class's colour in all 270 (experiments/detection)."""
SAME_PICTURE_VARIANCE = 0.65
TELLING_PIXELS = 0.25
"""It is the same picture within a class if the lower end of that share, over this part of the place's pixels, those
that the class explains best, reaches SAME_PICTURE_VARIANCE. Round cells in the middle, whose nuclei differ by class,
reached 0.53 in 64 to 300 images; a dot there whose colour goes with the class in 98 % of them 0.78 at least."""
FEWEST_PER_CLASS = 5
"""Of fewer images per class in the mean, the interval says nothing: 32 images of clothes of ten classes reached 0.88.
"""
SURE_DEVIATIONS = 1.645
"""How many standard errors the lower end of a one-sided interval of 95 % lies below the share."""


class ExplainedVariance(NamedTuple):
    """How much the class says about a region's content.

    Attributes:
        share: The share of the variance that the class explains, adjusted for the number of classes (epsilon squared,
            Kelley 1935), so that it is 0 on average where the class says nothing. It is at most 1, and nan with one
            class or where there is no variance.
        p_value: The p-value of a permutation test; nan where it was not made.
    """

    share: float
    p_value: float


def explained_by_class(
    contents: Float[np.ndarray, "n values"],
    predicted: Int[np.ndarray, " n"],
    *,
    least: float = -np.inf,
    seed: int = 0,
) -> ExplainedVariance:
    """Measure how much of the variance of a region's content the predicted class explains.

    What is planted looks the same in all images of a class; an object that moves does not. An object that always lies
    in the same place does: without annotations it cannot be told from something planted. Pass all images, not the
    members of a cluster: those were chosen by their maps, so that their objects lie alike.

    Args:
        contents: The region's pixels in every image.
        predicted: The predicted class of each image.
        least: A smaller share is not tested, which takes a hundred times as long as to compute it.
        seed: The seed of the permutations.
    """
    _, index = np.unique(predicted, return_inverse=True)
    share = _explained_share(contents, index)
    # A share of nan is not tested either.
    p_value = _permutation_p_value(contents, index, seed) if share >= least else float("nan")
    return ExplainedVariance(share, p_value)


def _explained_share(contents: Float[np.ndarray, "n values"], index: Int[np.ndarray, " n"]) -> float:
    """Return the adjusted share of the variance that classes, counted from 0, explain; nan where there is none."""
    sizes = np.bincount(index)
    n = len(contents)
    k = len(sizes)
    centred = contents - contents.mean(0)
    total = float(np.square(centred).sum())
    if k < 2 or n <= k or total <= 0:
        return float("nan")
    class_means = np.eye(k)[:, index] @ centred / sizes[:, None]
    between = float((sizes[:, None] * np.square(class_means)).sum())
    # Mean squares within classes over all mean squares: both estimate the same variance if the class says nothing.
    return 1.0 - ((total - between) / (n - k)) / (total / (n - 1))


def _permutation_p_value(contents: Float[np.ndarray, "n values"], index: Int[np.ndarray, " n"], seed: int) -> float:
    """Return in which share of random orders of the classes, the given one included, they explain as much."""
    centred = contents - contents.mean(0)
    # [n, n] instead of [values, values]: there are far more pixels than images.
    products = centred @ centred.T
    # With P[i, j] = 1 / (size of the class) for i and j of one class, trace(products P) is the sum of squares between
    # classes. Permuting the images is the same as permuting the classes, and `products` is only computed once.
    same_class = (index[:, None] == index) / np.bincount(index)[index]
    rng = np.random.default_rng(seed)
    n = len(contents)
    # The observed order is one of them, so that a p-value is never 0.
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(PERMUTATIONS))]
    between = np.array([(products[np.ix_(order, order)] * same_class).sum() for order in orders])
    return float((between >= between[0] * (1 - 1e-9)).mean())


def is_planted(contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"]) -> bool:
    """Return whether the predicted class surely explains a good part of what a place holds.

    Args:
        contents: As for `explained_by_class`.
        predicted: As for `explained_by_class`.
    """
    explained = explained_by_class(contents, predicted, least=MIN_EXPLAINED_VARIANCE)
    return explained.p_value <= MAX_CONTENT_P_VALUE


def is_surely_planted(contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"]) -> bool:
    """Return whether the predicted class explains a good part of what a place holds, by chance of the sample or not.

    Objects explain a part, too: the coats of three breeds differ. Of few images this part looks larger now and then, so
    that here its lower end counts, and not only whether it is there at all.

    Args:
        contents: As for `explained_by_class`.
        predicted: As for `explained_by_class`.
    """
    return sure_share(contents, predicted) >= SURE_EXPLAINED_VARIANCE


def sure_share(contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"]) -> float:
    """Return the lower end of a one-sided interval of 95 % for the share that the class explains.

    Args:
        contents: As for `explained_by_class`.
        predicted: As for `explained_by_class`.

    Returns:
        The lower end; nan where the share is not defined.
    """
    share = explained_by_class(contents, predicted, least=np.inf).share
    return share - SURE_DEVIATIONS * standard_error_of_share(contents, predicted)


def is_same_picture(contents: Float[np.ndarray, "n channels pixels"], predicted: Int[np.ndarray, " n"]) -> bool:
    """Return whether some of what a place holds is all but the same picture within each predicted class.

    It asks for more than `is_surely_planted`, and is for places at which objects are expected: the middle, and any
    place of images that are laid out alike. The class explains a good part of what these hold, but not nearly all of
    it. A mark may be smaller than the place, so that the pixels that the class explains best are those that count.

    Args:
        contents: The place's pixels in every image.
        predicted: The predicted class of each image.

    Returns:
        False also where there are fewer than `FEWEST_PER_CLASS` images per predicted class.
    """
    classes, index = np.unique(predicted, return_inverse=True)
    if len(predicted) < FEWEST_PER_CLASS * len(classes):
        return False
    count = max(1, round(TELLING_PIXELS * contents.shape[2]))
    best = np.argsort(-_shares_between(contents, index), kind="stable")[:count]
    telling = contents[:, :, best].reshape(len(contents), -1)
    return sure_share(telling, predicted) >= SAME_PICTURE_VARIANCE


def _shares_between(
    contents: Float[np.ndarray, "n channels pixels"], index: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " pixels"]:
    """Return the share of each pixel's variance that lies between classes, in [0, 1]; 0 where it has none."""
    centred = contents - contents.mean(0)
    member = np.eye(int(index.max()) + 1)[index]  # [n, classes]
    class_means = np.einsum("nk,ncp->kcp", member, centred) / member.sum(0)[:, None, None]
    between = np.einsum("k,kcp->p", member.sum(0), np.square(class_means))
    total = np.square(centred).sum((0, 1))
    return np.asarray(np.divide(between, total, out=np.zeros_like(total), where=total > 0))


def standard_error_of_share(contents: Float[np.ndarray, "n values"], predicted: Int[np.ndarray, " n"]) -> float:
    """Return the standard error of the share of `explained_by_class` by the jackknife (Efron and Stein 1981).

    Args:
        contents: As for `explained_by_class`.
        predicted: As for `explained_by_class`.

    Returns:
        The standard error; nan where the share is not defined without some image.
    """
    _, index, sizes = np.unique(predicted, return_inverse=True, return_counts=True)
    n = len(contents)
    centred = contents - contents.mean(0)
    # All sums of squares follow from products of images: [n, n] instead of [n, values] once per image.
    products = centred @ centred.T
    member = np.eye(len(sizes))[index]  # [n, classes]
    with_class = products @ member  # [n, classes]: each image times the sum over a class
    of_class = (member * with_class).sum(0)  # the squared length of each class's sum
    squares = np.diag(products)
    # Without image i: the squares that are left, less those of the class sums, of which one has lost i. The images are
    # centred, so that those left sum to -i, and the squares around their mean are less by the square of i / (n - 1).
    total = squares.sum() - squares - squares / (n - 1)
    left = sizes[index] - 1
    its_class = of_class[index] - 2 * with_class[np.arange(n), index] + squares
    between = (
        (of_class / sizes).sum() - (of_class / sizes)[index] + np.where(left > 0, its_class / np.maximum(left, 1), 0)
    )
    within = squares.sum() - squares - between
    classes = len(sizes) - (left == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = 1 - (within / (n - 1 - classes)) / (total / (n - 2))
    return float(np.sqrt((n - 1) * np.square(shares - shares.mean()).mean()))


def place_contents(
    samples: Sequence[Sample], region: Region, grid: tuple[int, int]
) -> Float[Tensor, "n channels pixels"] | None:
    """Return the pixels of a place in every image; None if the images differ in size.

    Args:
        samples: Samples with images.
        region: A place, the same in all images.
        grid: Rows and columns of the patches.
    """
    images = images_of(samples)
    if len({image.shape for image in images}) > 1:
        return None
    inside = pixels(region, {"image": images[0][None]}, grid)[0]  # [height, width], the same in all images
    rows, columns = inside.nonzero(as_tuple=True)
    # The rectangle around the place first: all images, whole and stacked, are hundreds of times as much to copy.
    rectangle = (slice(int(rows.min()), int(rows.max()) + 1), slice(int(columns.min()), int(columns.max()) + 1))
    return torch.stack([image[:, *rectangle] for image in images]).float()[:, :, inside[rectangle]]
