"""How well do plain features of the samples tell what the model answers? It needs neither maps nor interventions.

A shortcut is mostly plainer than what it stands for: a colour, an edge, a word. Where features that know nothing of
objects or meanings foretell the answers, the model may read no more than they do. Datalab asks so of the labels (one
property at a time), and what networks learn first, and read in their early layers, is asked for the same reason (Murali
et al. 2023, "Beyond Distribution Shift: Spurious Features Through the Lens of Training Dynamics").
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from lrptrain.findings.association import PARTS, association, can_be_told
from lrptrain.findings.evaluation import Evaluation, ExplainedSample
from lrptrain.intervention.regions import images_of

BANDS = (0.01, 0.07, 0.13, 0.2, 0.3, 0.4, 0.75)
"""Where bands of frequencies begin and end, in cycles per pixel."""
DIRECTIONS = 4
"""So many directions of waves are told apart in every band."""
BRIGHTNESS_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
SHARPNESS_PERCENTILES = (5, 25, 50, 75, 95, 99)
THUMBNAIL = 4
"""Rows and columns of the smallest picture of an image."""
WORTH_SAYING = 0.5
ENOUGH_TO_SAY = 64
"""From here on, of so many images, it is told in words. In the benchmark's development no clean run of 48 came so far,
and 31 of 49 that read a shortcut did. In 32 images, chance alone may."""
MOST_TOKENS = 256
"""So many of the most frequent tokens are features: the cost grows with the cube of their number."""
LEAST_POWER = 1e-6
LEAST_SHARPNESS = 1e-3
"""What is added before a logarithm is taken, in units of the variance and of the deviation of the pixels."""


class Predictability(NamedTuple):
    """How well plain features of the samples tell a class, each 0 for guessing and 1 for always; nan if unknown.

    Attributes:
        answers: The predicted class: what the model may have taken up.
        labels: The label: what there is to be taken up. nan of samples without labels.
    """

    answers: float
    labels: float


def plain_predictability(evaluation: Evaluation) -> Predictability:
    """Return how well plain features of the samples tell the predicted class, and the label.

    It is the association (`lrptrain.findings.association`) of these with the features of images (`image_features`) or
    of texts (`text_features`).

    Returns:
        nan where it cannot be told: without inputs, for what is neither image nor text, for images whose numbers of
        channels differ, and where too few samples have one of several answers or labels.
    """
    predicted = np.array([explained.predicted for explained in evaluation.samples])
    features = _plain_features(evaluation) if can_be_told(predicted) else None
    if features is None:
        return Predictability(float("nan"), float("nan"))
    labels = np.array([explained.sample.label for explained in evaluation.samples])
    of_labels = association(features, labels) if can_be_told(labels) else float("nan")
    return Predictability(association(features, predicted), of_labels)


def _plain_features(evaluation: Evaluation) -> Float[np.ndarray, "n features"] | None:
    """Return the plain features of all samples; None where there are none."""
    if evaluation.inputs is None:
        return None
    if evaluation.medium == "text":
        return text_features(evaluation.samples)
    if evaluation.medium != "image":
        return None
    images = images_of(evaluation.inputs)
    if {image.ndim for image in images} != {3} or len({len(image) for image in images}) != 1:
        return None
    return image_features(images)


def remark(predictability: float, evaluation: Evaluation) -> str:
    """Return a sentence on answers that plain features foretell; "" where they do not, or where too little is known.

    Nothing is said of texts: what they are about may well be a matter of single words. Nor of images with annotations:
    there the surroundings are tested, and a small picture of the evidence itself may foretell the answers rightly, as
    it may where all objects lie alike: of clean digits in the middle, it foretells half of the way.

    Args:
        predictability: That of the answers, as `plain_predictability` returns it.
        evaluation: What it is of.
    """
    is_annotated = any(explained.annotated is not None for explained in evaluation.samples)
    is_known = evaluation.medium == "image" and len(evaluation.samples) >= ENOUGH_TO_SAY
    if is_annotated or not is_known or not predictability >= WORTH_SAYING or evaluation.any_place_may_hold_objects:
        return ""
    return (
        "The answers can be guessed from colours, sharpness and a thumbnail of 4 x 4 cells alone "
        f"({predictability:.2f}, where 0 is chance and 1 is always): should these decide?"
    )


def image_features(images: Sequence[Float[Tensor, "channels height width"]]) -> Float[np.ndarray, "n features"]:
    """Return colours, brightness, sharpness, patterns and a thumbnail of each image, which may be of any size.

    These are: mean and spread of each channel; how each differs from the mean of all channels; percentiles of the
    brightness, and of the logarithm of the absolute Laplacian; the logarithm of the power in bands of frequencies, by
    the waves' directions; and the means of a grid of cells, per channel.

    Args:
        images: Images with the same number of channels. The unit of their values does not matter: they are divided by
            the deviation of the pixels of all of them.
    """
    unit = _deviation(images)
    return np.stack([_features_of(image.detach().float().cpu() / unit) for image in images])


def _deviation(images: Sequence[Tensor]) -> float:
    """Return the standard deviation of all pixels of all images; 1 where all are alike."""
    pixels = torch.cat([image.detach().float().cpu().flatten() for image in images])
    deviation = float(pixels.std())
    return deviation if deviation > 0 else 1.0


def _features_of(image: Float[Tensor, "channels height width"]) -> Float[np.ndarray, " features"]:
    brightness = image.mean(0)
    laplacian = np.abs(ndimage.laplace(brightness.numpy()))
    return np.concatenate(
        [
            image.mean((1, 2)).numpy(),
            image.std((1, 2), correction=0).numpy(),
            (image - brightness).std((1, 2), correction=0).numpy(),
            np.percentile(brightness.numpy(), BRIGHTNESS_PERCENTILES),
            np.log(np.percentile(laplacian, SHARPNESS_PERCENTILES) + LEAST_SHARPNESS),
            _power(brightness),
            F.adaptive_avg_pool2d(image[None], THUMBNAIL).flatten().numpy(),
        ]
    )


def _power(brightness: Float[Tensor, "height width"]) -> Float[np.ndarray, " bands_and_directions"]:
    """Return the logarithm of the mean power in each band and direction; of none where no wave lies in it."""
    height, width = brightness.shape
    spectrum = torch.fft.fft2(brightness - brightness.mean()).abs().square().flatten().numpy() / brightness.numel()
    cells, sizes = _cells_of_waves(height, width)
    power = np.bincount(cells, spectrum, len(sizes)) / sizes.clip(1)
    logarithms: np.ndarray = np.log(power[1:] + LEAST_POWER)
    return logarithms


@lru_cache(maxsize=8)
def _cells_of_waves(height: int, width: int) -> tuple[Int[np.ndarray, " waves"], Int[np.ndarray, " cells"]]:
    """Return in which band and direction each wave of an image lies, 0 for none, and how many waves each cell holds."""
    down, across = np.meshgrid(np.fft.fftfreq(height), np.fft.fftfreq(width), indexing="ij")
    band = np.digitize(np.hypot(down, across), BANDS)
    direction = np.floor((np.arctan2(down, across) / np.pi * DIRECTIONS + 0.5) % DIRECTIONS).astype(int)
    is_inside = (band > 0) & (band < len(BANDS))
    cells = np.where(is_inside, 1 + (band - 1) * DIRECTIONS + direction, 0).flatten()
    return cells, np.bincount(cells, minlength=1 + (len(BANDS) - 1) * DIRECTIONS)


def text_features(samples: Sequence[ExplainedSample]) -> Float[np.ndarray, "n features"]:
    """Return which frequent tokens each text holds, as 0 and 1, and the logarithm of one more than its length.

    A token is frequent that five texts hold, and of those the `MOST_TOKENS` most frequent are taken.
    """
    tokens = [np.unique(_content(each)) for each in samples]
    names, counts = np.unique(np.concatenate(tokens), return_counts=True)
    commonest = np.sort(np.argsort(-counts, kind="stable")[:MOST_TOKENS])
    frequent = names[commonest][counts[commonest] >= PARTS]
    holds = np.stack([np.isin(frequent, held) for held in tokens]).astype(float)
    lengths = np.log1p([len(_content(each)) for each in samples])
    return np.concatenate([holds, lengths[:, None]], 1)


def _content(sample: ExplainedSample) -> np.ndarray:
    """Return the ids of the tokens that are content, in their order."""
    assert sample.content_ids is not None
    ids: np.ndarray = np.asarray(sample.content_ids)
    return ids[ids >= 0]
