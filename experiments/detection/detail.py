"""Does the swap of an image's fine detail tell models that read sharpness or noise from others? See README.md.

    .venv/bin/python -m experiments.detection.detail

Trains small ViTs on digits and photographs whose class goes with how noisy, sharp or coarse an image is, or with a
pattern that lies over it, and on some where it does not. It prints how far answers move under the swap, beyond the
control.
"""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from experiments.benchmark import image_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.command import no_options
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


SIDES = (24, 18, 13, 9)
"""To how many pixels a side images are made smaller, before they are made larger again."""
WAVES = ((0.0, 3), (90.0, 3), (45.0, 5), (34.0, 4))
"""The direction of each class's pattern in degrees, and its period in pixels."""


def resize(picture: image_marks.Picture, form: int, _: np.random.Generator) -> image_marks.Picture:
    """Of the resolution that the class says, made larger again."""
    image = Image.fromarray((255 * picture.clip(0, 1)).round().astype(np.uint8))
    for side in (SIDES[form], len(picture)):
        image = image.resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32) / 255


def weave(picture: image_marks.Picture, form: int, rng: np.random.Generator) -> image_marks.Picture:
    """With brighter and darker lines in the direction of the class."""
    angle, period = WAVES[form]
    along = image_marks.ROWS * np.cos(np.deg2rad(angle)) + image_marks.COLUMNS * np.sin(np.deg2rad(angle))
    wave = np.sin(2 * np.pi * (along / period + rng.random()))
    return (picture * (1 + 0.5 * wave[..., None])).clip(0, 1).astype(np.float32)


KINDS: dict[str, Callable[..., image_marks.Picture]] = {
    "noise": noise,
    "sharpen": sharpen,
    "pixelate": pixelate,
    "resize": resize,
    "weave": weave,
}


def cases() -> list[Case]:
    """Planted runs of three correlations, clean ones with the same marks, and clean ones without."""
    plan = [(kind, correlation) for correlation in (1.0, 0.9, 0.8, None) for kind in KINDS]
    plan += [(NO_MARK, None)] * 3
    pairs = [(task, *each) for each in plan for task in ("digits", "photographs")]
    return [Case(*each, 55, number) for number, each in enumerate(pairs)]


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    image_marks.PICTURE_MARKS |= KINDS
    rows = []
    for case in cases():
        rows += measured(case, RelianceOnDetail())
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
