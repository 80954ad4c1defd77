"""Is a dot in random places found that is smaller than a patch, and nothing where nothing is planted? See README.md.

    .venv/bin/python -m experiments.detection.small_marks

Without a model: labels stand for answers, and the relevance lies on the dot, or about the middle where there is none.
"""

import numpy as np
import torch
from jaxtyping import Int

from experiments.command import no_options
from experiments.detection.edges import COLOURS
from experiments.detection.planted import Images, data
from experiments.table import markdown
from lrptrain.findings.detectors.marks import find_marks

PATCH, DRAWS, SOFTNESS = 8, 10, 0.5
"""Side of a patch in pixels; draws of images; over how many pixels the edge of a dot fades, to either side."""
SIZES, DIAMETERS = (32, 128), (0, 4)
"""Numbers of images; diameters of the dots in pixels, 0 for none."""


def with_dots(
    images: Images, labels: Int[np.ndarray, " n"], diameter: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The images with a dot of their class's colour anywhere, and the share of the relevance at each patch."""
    grid = images.shape[2] // PATCH
    rows, columns = np.mgrid[: images.shape[2], : images.shape[3]]
    shown = images.astype(np.float32).copy()
    shares = 0.1 * rng.random((len(images), grid, grid))
    for image, share, label in zip(shown, shares, labels, strict=True):
        rim = diameter / 2 if diameter else 0.3 * images.shape[2]
        middle = rng.uniform(rim, images.shape[2] - rim, 2)
        cover = np.clip(diameter / 2 + SOFTNESS - np.hypot(rows - middle[0], columns - middle[1]), 0, 1)
        if diameter:
            image += cover * (COLOURS[label][:, None, None] - image)
        down, across = (middle / PATCH).astype(int).clip(0, grid - 1)
        share[down, across] = 5
    shares = shares.reshape(len(images), -1)
    return torch.from_numpy(shown), torch.from_numpy(shares / shares.sum(1, keepdims=True)).float()


def measured(images: Images, labels: Int[np.ndarray, " n"], diameter: int, count: int) -> dict[str, str]:
    """In how many draws a class has a mark, and in how many most of them have one."""
    grid = images.shape[2] // PATCH
    marked = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(images))[:count]
        shown, shares = with_dots(images[rows], labels[rows], diameter, rng)
        marked.append(len(find_marks(shown, shares, (grid, grid), labels[rows])))
    return {
        "images": str(count),
        "draws with a mark": f"{sum(number > 0 for number in marked)} of {DRAWS}",
        "classes with one": f"{sum(marked)} of {DRAWS * len(np.unique(labels))}",
    }


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    rows = [
        {"dot": f"{diameter} pixels" if diameter else "none", "images of": name} | measured(*found, diameter, count)
        for diameter in DIAMETERS
        for name, found in data().items()
        for count in SIZES
    ]
    print(markdown(rows))


if __name__ == "__main__":
    main()
