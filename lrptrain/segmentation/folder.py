"""Images with the masks of an export, and their random windows."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from lrptrain.data.pictures import open_picture, read_mask, to_image
from lrptrain.files import read_text
from lrptrain.segmentation.config import PseudoMaskConfig
from lrptrain.segmentation.export_files import LISTS, MASKS


def random_windows(
    image: Float[Tensor, "batch 3 height width"],
    mask: UInt8[Tensor, "batch height width"],
    smallest: float = 0.5,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch 3 height width"], UInt8[Tensor, "batch height width"]]:
    """Cut a random window out of each image and its mask, resize it to the full size, and mirror it half of the time.

    Images are interpolated bilinearly, of masks the nearest pixel is taken. `smallest` is the side of the smallest
    window, as a share of the image's in (0, 1].

    Raises:
        ValueError: If `smallest` is out of range, or sizes differ.
    """
    if not 0 < smallest <= 1:
        raise ValueError(f"smallest must lie in (0, 1], got {smallest}")
    if mask.shape != (len(image), *image.shape[-2:]):
        raise ValueError(f"mask must be {[len(image), *image.shape[-2:]]}, as the images, got {list(mask.shape)}")
    # Per sample: the window's side, its place in both directions, and whether it is mirrored.
    side, x, y, mirror = torch.rand(4, len(image), generator=generator, device=image.device, dtype=image.dtype)
    side = smallest + (1 - smallest) * side
    theta = image.new_zeros(len(image), 2, 3)
    # x' = side * x + shift in coordinates of -1..1; a negative factor mirrors. The window never leaves the image.
    theta[:, 0, 0] = torch.where(mirror < 0.5, -side, side)
    theta[:, 1, 1] = side
    theta[:, 0, 2] = (1 - side) * (2 * x - 1)
    theta[:, 1, 2] = (1 - side) * (2 * y - 1)
    window = F.affine_grid(theta, list(image.shape), align_corners=False)
    image = F.grid_sample(image, window, padding_mode="border", align_corners=False)
    # grid_sample takes floating point only, where 0..255 are exact; the nearest pixel mixes no classes.
    values = F.grid_sample(mask[:, None].to(image), window, mode="nearest", padding_mode="border", align_corners=False)
    return image, values[:, 0].round().to(torch.uint8)


class ExportedMasks(Dataset[dict[str, Tensor]]):
    """Dicts of `image` and `mask` (0 background, 1 + class, 255 ignored) of the images on a list of an export.

    `folder` is the export or its `truth`; without a list of the split it has no image. Both are resized to `size`,
    images are normalised with the config's mean and std, else with 0.5, and cut by `random_windows` with `smallest`. A
    mask with a value beyond the classes is refused.
    """

    def __init__(
        self,
        folder: Path,
        images: Path,
        split: str,
        config: PseudoMaskConfig,
        classes: int,
        size: tuple[int, int],
        smallest: float | None = None,
    ) -> None:
        listed = folder / LISTS / f"{split}.txt"
        self.names = read_text(listed).split() if listed.is_file() else []
        self.folder, self.images = folder, images
        self.classes, self.size, self.smallest = classes, size, smallest
        self.mean, self.std = (
            torch.tensor([0.5] * 3 if values is None else list(values))[:, None, None]
            for values in (config.mean, config.std)
        )

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        image = (to_image(open_picture(self.images / f"{name}.jpg"), self.size) - self.mean) / self.std
        mask = read_mask(self.folder / MASKS / f"{name}.png", self.size, self.classes, resize=True)
        if self.smallest is not None:
            image, mask = (x[0] for x in random_windows(image[None], mask[None], self.smallest))
        return {"image": image, "mask": mask}
