"""How sure a model is beside how often it is right, and probabilities that are as sure as they should be."""

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require

MOST_DOUBT = 0.1
"""A model is taken as it is while its mean confidence is at most so much below its accuracy: a choice."""
MOST_CONFIDENCE = 0.99
"""Where a model is always right, it should be as sure as this."""
MOST_SHARPNESS = 1e4
"""It tells probabilities apart that differ by a ten thousandth of themselves; what differs by less is rounding."""


def sharpness(probabilities: Float[np.ndarray, "samples classes"], labels: Int[np.ndarray, " samples"]) -> float:
    """Return the power that makes the mean confidence of a doubtful model equal its accuracy.

    A model whose probabilities are all near each other moves by no more than a few points, whatever it relies on: a
    loss that punishes confident answers makes such models, and an effect measured in probabilities would find
    them to rely on nothing. Temperature scaling (Guo et al. 2017, "On calibration of modern neural networks") fits one
    number on the labelled samples; here it only ever sharpens.

    Returns:
        1 where the model is sure enough, or no label is known; else up to 1e4, for `sharpened`.
    """
    labelled = labels >= 0
    if not labelled.any():
        return 1.0
    of_labelled = probabilities[labelled]
    accuracy = float((of_labelled.argmax(1) == labels[labelled]).mean())
    if accuracy - of_labelled.max(1).mean() <= MOST_DOUBT:
        return 1.0
    wanted = min(accuracy, MOST_CONFIDENCE)

    def excess(exponent: float) -> float:
        return float(sharpened(of_labelled, float(np.exp(exponent))).max(1).mean() - wanted)

    # The mean confidence rises with the power.
    highest = float(np.log(MOST_SHARPNESS))
    if excess(highest) < 0:
        return MOST_SHARPNESS
    return float(np.exp(require("scipy.optimize", "monitor").brentq(excess, 0.0, highest)))


def sharpened(
    probabilities: Float[np.ndarray, "samples classes"], power: float
) -> Float[np.ndarray, "samples classes"]:
    """Return probabilities to a power, made to sum to 1 again: those of logits that are so many times as large."""
    if power == 1.0:
        return probabilities
    with np.errstate(divide="ignore"):
        logits = power * np.log(probabilities)
    raised = np.exp(logits - logits.max(1, keepdims=True))
    scaled: Float[np.ndarray, "samples classes"] = raised / raised.sum(1, keepdims=True)
    return scaled
