"""Does the swap of shading tell models that read how light falls from others? See README.md.

    .venv/bin/python -m experiments.detection.shading

Trains small ViTs on digits and photographs whose class goes with the lamp under which an image was taken, on some where
the lamp is of any class, and on some without. It prints how far answers move under the swap, beyond the control.
"""

from collections.abc import Callable

import numpy as np
import torch

from experiments.benchmark import image_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.image_marks import COLUMNS, ROWS
from experiments.benchmark.scenes import SIDE
from experiments.command import no_options
from experiments.detection.properties import measured
from experiments.table import markdown
from lrptrain.findings.detectors.shading import RelianceOnShading

LAMPS = ((0.1, 0.2), (0.3, 0.9), (0.8, 0.1), (0.9, 0.8))
"""Where each class's lamp stands: the share of the height, and of the width."""
SHADOWS = ((0.25, 0), (0.5, 0), (0.25, 1), (0.5, 1))
"""Of a shadow that falls from an edge: its width as a share of the side, and the axis that it lies along."""


def lamp(picture: image_marks.Picture, form: int, _: np.random.Generator) -> image_marks.Picture:
    """Brightest below the lamp of the class, and darker with the distance from it."""
    down, across = (place * (SIDE - 1) for place in LAMPS[form])
    squares = ((ROWS - down) ** 2 + (COLUMNS - across) ** 2) / SIDE**2
    return (picture * (1.4 / (1 + 2 * squares))[..., None]).clip(0, 1)


def shadow(picture: image_marks.Picture, form: int, _: np.random.Generator) -> image_marks.Picture:
    """Half as bright along an edge, as wide as the class says."""
    width, axis = SHADOWS[form]
    falls = (ROWS if axis == 0 else COLUMNS) < width * SIDE
    return np.where(falls[..., None], 0.5 * picture, picture)


KINDS: dict[str, Callable[..., image_marks.Picture]] = {"lamp": lamp, "shadow": shadow}


def cases() -> list[Case]:
    """Planted runs of three correlations, clean ones with the same lamps, and clean ones without."""
    plan = [(kind, correlation) for correlation in (1.0, 0.9, 0.8, None) for kind in KINDS]
    plan += [(NO_MARK, None)] * 4 + [("place", None)] * 2
    pairs = [(task, *each) for each in plan for task in ("digits", "photographs")]
    return [Case(*each, 57, number) for number, each in enumerate(pairs)]


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    image_marks.PICTURE_MARKS |= KINDS
    rows = []
    for case in cases():
        rows += measured(case, RelianceOnShading())
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
