"""A fully connected conditional random field (Krähenbühl & Koltun 2011), by the package pydensecrf2, an extra."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.extras import require


def dense_crf(
    images: Float[Tensor, "batch 3 height width"],
    maps: Float[Tensor, "batch classes height width"],
    background: float = 0.4,
    iterations: int = 10,
    near: tuple[float, float] = (3.0, 3.0),
    alike: tuple[float, float, float] = (10.0, 80.0, 13.0),
) -> Float[Tensor, "batch classes height width"]:
    """Refine maps by the colours and positions of all pixels at once; on the CPU, one image after the other.

    The field's labels are the background and the classes of an image whose map is not 0; their probabilities are the
    background's level and the maps, scaled to sum 1.

    Args:
        images: RGB in 0..1.
        maps: In 0..1.
        background: Level at which a map's pixel is as likely background.
        iterations: Of the mean field.
        near: Weight of nearness, and its standard deviation in pixels.
        alike: Weight of likeness, and its standard deviations in pixels and in levels of colour (0..255).

    Returns:
        Probabilities of the classes, in 0..1.

    Raises:
        ImportError: With the command that installs the package; it is built from source and needs a C++ compiler.
    """
    require("pydensecrf.densecrf", "crf")
    refined = torch.zeros_like(maps)
    for row, (image, of_image) in enumerate(zip(images, maps, strict=True)):
        shown = of_image.flatten(1).any(1).nonzero().flatten()
        if len(shown):
            probabilities = torch.cat([torch.full_like(of_image[:1], background), of_image[shown]]).clamp(min=1e-6)
            pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
            found = _inferred(pixels, probabilities / probabilities.sum(0), iterations, near, alike)
            refined[row, shown] = found[1:].to(maps)
    return refined


def _inferred(
    pixels: Tensor,
    probabilities: Float[Tensor, "labels height width"],
    iterations: int,
    near: tuple[float, float],
    alike: tuple[float, float, float],
) -> Float[Tensor, "labels height width"]:
    labels, height, width = probabilities.shape
    field = require("pydensecrf.densecrf", "crf").DenseCRF2D(width, height, labels)
    unary = -probabilities.detach().cpu().float().log().flatten(1).numpy()
    field.setUnaryEnergy(np.ascontiguousarray(unary))
    field.addPairwiseGaussian(sxy=near[1], compat=near[0])
    colours = np.ascontiguousarray(pixels.cpu().numpy())
    field.addPairwiseBilateral(sxy=alike[1], srgb=alike[2], rgbim=colours, compat=alike[0])
    return torch.from_numpy(np.array(field.inference(iterations))).unflatten(1, (height, width))
