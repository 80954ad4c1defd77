"""The figure: scenes with two digits, and what some methods show for the class of each."""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from torch import Tensor, nn

from experiments.class_specific.scenes import Scenes
from experiments.per_method import Row
from lrptrain.render.image import overlay, to_picture

METHODS = ("rollout", "generic_attention", "transformer_attribution", "attnlrp")
MEAN, STD = (0.5,) * 3, (0.25,) * 3
"""Of the scenes of digits."""


def draw(
    model: nn.Module,
    scenes: Scenes,
    maps: Callable[[nn.Module, Scenes, Row], list[Tensor]],
    path: Path,
) -> None:
    """One row per scene: the image, then per method the map of the first and of the second object's class.

    Args:
        model: Explained.
        scenes: A few.
        maps: Two maps per scene, one for each object.
        path: PNG to write.
    """
    count, columns = len(scenes.images), 1 + 2 * len(METHODS)
    figure, axes = plt.subplots(count, columns, figsize=(1.25 * columns, 1.5 * count), squeeze=False)
    figure.set_layout_engine("constrained")
    for panel in axes.flat:
        panel.set_axis_off()
    for row, image in enumerate(scenes.images):
        axes[row, 0].imshow(to_picture(image, mean=MEAN, std=STD))
    axes[0, 0].set_title("image", fontsize=8)
    for number, method in enumerate(METHODS):
        for index, scores in enumerate(maps(model, scenes, Row(method))):
            for row, (image, heat, mask) in enumerate(
                zip(scenes.images, scores.unflatten(1, scenes.grid), scenes.masks[:, index], strict=True)
            ):
                panel = axes[row, 1 + 2 * number + index]
                panel.imshow(overlay(image, heat, mask, mean=MEAN, std=STD))
                title = f"{scenes.labels[row, index]}?"
                panel.set_title(f"{method}\n{title}" if row == 0 else title, fontsize=7)
    figure.savefig(path, dpi=100)
    plt.close(figure)
