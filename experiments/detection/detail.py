"""Does the swap of an image's finest detail tell models that read sharpness or noise from others? See README.md.

    .venv/bin/python -m experiments.detection.detail

Trains small ViTs on digits and photographs whose class goes with how noisy, how sharp or how coarse an image is, and on
some where it does not, and prints how far answers move under the swap, beyond the control.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from experiments.benchmark import image_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.detection.properties import measured
from experiments.table import markdown
from lrptrain.findings.detectors.detail import RelianceOnDetail

NOISE = (0.0, 0.05, 0.1, 0.2)
"""Standard deviations of each class's noise, of pixels in 0..1."""
SHARPER = (0.0, 0.7, 1.5, 3.0)
"""How much is added of what smoothing takes away."""
CELLS = (1, 2, 3, 4)
"""The sides of the cells that are of one colour, in pixels."""


def noise(picture: image_marks.Picture, form: int, rng: np.random.Generator) -> image_marks.Picture:
    """As noisy as the class says."""
    return (picture + NOISE[form] * rng.standard_normal(picture.shape)).clip(0, 1).astype(np.float32)


def sharpen(picture: image_marks.Picture, form: int, _: np.random.Generator) -> image_marks.Picture:
    """As sharp as the class says."""
    return (picture + SHARPER[form] * (picture - gaussian_filter(picture, (1, 1, 0)))).clip(0, 1)


def pixelate(picture: image_marks.Picture, form: int, _: np.random.Generator) -> image_marks.Picture:
    """As coarse as the class says."""
    cell = CELLS[form]
    coarse = picture[::cell, ::cell]
    return np.repeat(np.repeat(coarse, cell, 0), cell, 1)[: len(picture), : picture.shape[1]]


KINDS: dict[str, Callable[..., image_marks.Picture]] = {"noise": noise, "sharpen": sharpen, "pixelate": pixelate}


def cases() -> list[Case]:
    """Planted runs of three correlations, clean ones with the same marks, and clean ones without."""
    plan = [(kind, correlation) for correlation in (1.0, 0.9, 0.8, None) for kind in KINDS]
    plan += [(NO_MARK, None), (NO_MARK, None)]
    pairs = [(task, *each) for each in plan for task in ("digits", "photographs")]
    return [Case(*each, 55, number) for number, each in enumerate(pairs)]


def main() -> None:
    torch.set_num_threads(1)
    image_marks.PICTURE_MARKS |= KINDS
    rows = []
    for case in cases():
        rows += measured(case, RelianceOnDetail())
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
