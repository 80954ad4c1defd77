"""Drawings for the tests: thin bars, rings, discs and crosses on a black ground, as scanned digits are."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

SIDE = 28
CLASSES = 4


def drawings(
    count: int, jitter: float = 1.5, seed: int = 0
) -> tuple[Float[Tensor, "n 3 28 28"], Int[np.ndarray, " n"]]:
    """Return white figures and their classes in turn.

    Args:
        count: How many.
        jitter: By how many pixels, as a standard deviation, figures lie off the middle; whole ones, so that pieces of
            two bars are the same picture.
        seed: Of places and sizes.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    rows, columns = np.mgrid[:SIDE, :SIDE]
    images = []
    for label in labels:
        middle = SIDE // 2 + np.round(jitter * rng.normal(size=2))
        size = rng.uniform(8, 10)
        down = np.abs(rows - middle[0])
        across = np.abs(columns - middle[1])
        away = np.hypot(down, across)
        distances = {
            0: np.maximum(across - 0.5, down - size),
            1: np.abs(away - size) - 1.5,
            2: away - 0.7 * size,
            3: np.maximum(np.minimum(across, down) - 1.5, np.maximum(across, down) - size),
        }
        images.append(np.clip(0.5 - distances[int(label)], 0, 1))
    return torch.from_numpy(np.stack(images)).float()[:, None].repeat(1, 3, 1, 1), labels
