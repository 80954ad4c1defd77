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
        images: RGB images in 0..1.
        maps: Maps in 0..1.
        background: The value of a map at which its class and the background are equally likely.
        iterations: The number of iterations of the mean field.
        near: The weight of nearness, and its standard deviation in pixels.
        alike: The weight of likeness, and its standard deviations in pixels and in levels of colour (0..255).

    Returns:
        Probabilities of the classes, in 0..1.

    Raises:
        ImportError: With the command that installs the package; it is built from source and needs a C++ compiler.
    """
    require("pydensecrf.densecrf", "crf")
    refined = torch.zeros_like(maps)
    for row, (image, of_image) in enumerate(zip(images, maps, strict=True)):
        present = of_image.flatten(1).any(1).nonzero().flatten()
        if len(present):
            # [1 + present classes, height, width], the background first; not 0, because the field takes their
            # logarithm.
            probabilities = torch.cat([torch.full_like(of_image[:1], background), of_image[present]]).clamp(min=1e-6)
            pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
            labelled = _infer(pixels, probabilities / probabilities.sum(0), iterations, near, alike)
            refined[row, present] = labelled[1:].to(maps)
    return refined


def _infer(
    pixels: Tensor,
    probabilities: Float[Tensor, "labels height width"],
    iterations: int,
    near: tuple[float, float],
    alike: tuple[float, float, float],
) -> Float[Tensor, "labels height width"]:
    labels, height, width = probabilities.shape
    # The library takes the width first, and contiguous arrays: float32 [labels, height * width], uint8 [height, width,
    # 3].
    field = require("pydensecrf.densecrf", "crf").DenseCRF2D(width, height, labels)
    unary = -probabilities.detach().cpu().float().log().flatten(1).numpy()
    field.setUnaryEnergy(np.ascontiguousarray(unary))
    field.addPairwiseGaussian(sxy=near[1], compat=near[0])
    colours = np.ascontiguousarray(pixels.cpu().numpy())
    field.addPairwiseBilateral(sxy=alike[1], srgb=alike[2], rgbim=colours, compat=alike[0])
    return torch.from_numpy(np.array(field.inference(iterations))).unflatten(1, (height, width))
