"""Random windows of images, the same of their masks."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor


def random_windows(
    image: Float[Tensor, "batch 3 height width"],
    mask: UInt8[Tensor, "batch height width"],
    smallest: float = 0.5,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch 3 height width"], UInt8[Tensor, "batch height width"]]:
    """Per sample a random window of the image and of its mask, brought to the full size, mirrored half of the time.

    Args:
        image: Interpolated bilinearly.
        mask: Of the same size; the nearest pixel is taken.
        smallest: Share (0..1] of height and width that the smallest window has.
        generator: On the images' device; by default torch's own.

    Raises:
        ValueError: `smallest` is out of range, or sizes differ.
    """
    if not 0 < smallest <= 1:
        raise ValueError(f"smallest must lie in (0, 1], got {smallest}")
    if mask.shape != (len(image), *image.shape[-2:]):
        raise ValueError(f"mask must be {[len(image), *image.shape[-2:]]}, as the images, got {list(mask.shape)}")
    side, x, y, mirror = torch.rand(4, len(image), generator=generator, device=image.device, dtype=image.dtype)
    side = smallest + (1 - smallest) * side
    theta = image.new_zeros(len(image), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = torch.where(mirror < 0.5, -side, side), side
    theta[:, 0, 2], theta[:, 1, 2] = (1 - side) * (2 * x - 1), (1 - side) * (2 * y - 1)
    window = F.affine_grid(theta, list(image.shape), align_corners=False)
    image = F.grid_sample(image, window, padding_mode="border", align_corners=False)
    values = F.grid_sample(mask[:, None].to(image), window, mode="nearest", padding_mode="border", align_corners=False)
    return image, values[:, 0].round().to(torch.uint8)
