"""Write what Quantus says of random maps, to compare our metrics with (`tests/metrics/test_quantus.py`).

    python -m experiments.golden.quantus_numbers

Needs `pip install quantus==0.6.0` beside what lrptrain needs, better in an environment of its own: it brings pandas and
OpenCV. The test needs only the file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.command import no_options

TARGET = Path(__file__).resolve().parents[2] / "tests" / "metrics" / "golden" / "quantus.npz"
SAMPLES, SIDE = 24, 10
PLAIN: dict[str, Any] = {"abs": False, "normalise": False, "disable_warnings": True, "display_progressbar": False}


def main() -> None:
    no_options(__doc__)
    import quantus  # not among what lrptrain needs

    generator = np.random.default_rng(0)
    images = generator.normal(size=(SAMPLES, 1, SIDE, SIDE)).astype(np.float32)
    maps = generator.normal(size=(SAMPLES, 1, SIDE, SIDE))
    # Rectangles, so that some maxima hit and some miss.
    masks = np.zeros((SAMPLES, 1, SIDE, SIDE), bool)
    for mask, (top, left, height, width) in zip(masks[:, 0], generator.integers(1, 6, (SAMPLES, 4)), strict=True):
        mask[top : top + height, left : left + width] = True
    weight = generator.normal(size=(2, SIDE * SIDE)).astype(np.float32) / 4
    linear = nn.Linear(SIDE * SIDE, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weight))
    model = nn.Sequential(nn.Flatten(), linear).eval()
    target = model(torch.from_numpy(images)).argmax(1).numpy()

    flipping = quantus.PixelFlipping(features_in_step=SIDE, perturb_baseline=0.0, **PLAIN)
    arguments = {"model": model, "x_batch": images, "y_batch": target, "device": "cpu", "softmax": True}
    curves = flipping(a_batch=maps, s_batch=None, **arguments)
    located = {
        "pointing": quantus.PointingGame(**PLAIN),
        "energy": quantus.AttributionLocalisation(positive_attributions=True, **PLAIN),
        "rank": quantus.RelevanceRankAccuracy(**PLAIN),
    }
    found = {name: metric(a_batch=maps, s_batch=masks, **arguments) for name, metric in located.items()}
    TARGET.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        TARGET,
        images=images,
        maps=maps,
        masks=masks,
        weight=weight,
        target=target,
        flipping=np.array(curves, float),
        **{name: np.array(values, float) for name, values in found.items()},
    )
    print({name: np.round(np.mean(values), 3) for name, values in found.items()}, np.array(curves).shape)


if __name__ == "__main__":
    main()
