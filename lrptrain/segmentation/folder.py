"""A folder of images with masks of classes, in the layout of PASCAL VOC, and their random windows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lrptrain.data.common import SPLITS, loader
from lrptrain.data.pictures import find_pictures, open_picture, picture_size, read_mask, to_image, to_values
from lrptrain.files import read_text
from lrptrain.terminal import WrappedWarning


def random_windows(
    image: Float[Tensor, "batch 3 height width"],
    mask: UInt8[Tensor, "batch height width"],
    smallest: float = 0.5,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch 3 height width"], UInt8[Tensor, "batch height width"]]:
    """Cut a random window out of each image and its mask, resize it to the full size, and mirror it half of the time.

    Args:
        image: Images, which are interpolated bilinearly.
        mask: Masks of the same size, of which the nearest pixel is taken.
        smallest: The height and width of the smallest window, as a share of the image's in (0, 1].
        generator: A generator on the images' device; by default torch's own.

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


@dataclass(frozen=True)
class PixelSpec:
    """How files become tensors.

    Attributes:
        classes: The number of classes, without the background.
        size: Height and width in pixels.
        mean: The mean of each RGB channel, which is subtracted from values in 0..1.
        std: The standard deviation of each RGB channel, by which the difference is divided.
        smallest: The height and width of the smallest random window, as a share of the image's; None to leave images as
            they are.
    """

    classes: int
    size: tuple[int, int]
    mean: Sequence[float]
    std: Sequence[float]
    smallest: float | None = None


class PixelDataset(Dataset[dict[str, Any]]):
    """Dicts of `image`, `mask` (0 background, 1 + class, 255 ignored) and `sample_id` (the name).

    Args:
        samples: The name, the image file and the mask file of each sample.
        spec: How files become tensors.
    """

    def __init__(self, samples: Sequence[tuple[str, Path, Path]], spec: PixelSpec) -> None:
        self.samples = samples
        self.spec = spec

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, image_file, mask_file = self.samples[index]
        spec = self.spec
        mean = torch.tensor(spec.mean)[:, None, None]
        std = torch.tensor(spec.std)[:, None, None]
        image = (to_image(open_picture(image_file), spec.size) - mean) / std
        mask = read_mask(mask_file, spec.size, spec.classes, resize=True)
        if spec.smallest is not None:
            image, mask = (x[0] for x in random_windows(image[None], mask[None], spec.smallest))
        return {"image": image, "mask": mask, "sample_id": name}


class SegmentationFolder(pl.LightningDataModule):
    """Images, and masks in VOC's layout: `SegmentationClass/<name>.png` and `ImageSets/Segmentation/<split>.txt`.

    The training masks may be pseudo-masks, those of validation and test drawn by people: each have a folder. An image
    without a usable mask is left out, with a warning that counts them; `skipped` has each reason.

    Args:
        images: Folder of the images.
        masks: VOC folder of the training masks.
        classes: The number of classes, without the background.
        true_masks: VOC folder of the masks for validation and test; by default that of the training masks.
        splits: Names of the lists of training, validation and test images; a list that is missing is empty.
        size: Side or `(height, width)` in pixels to which images and masks are resized.
        mean: The mean of each RGB channel, for values in 0..1.
        std: The standard deviation of each RGB channel, for values in 0..1.
        smallest: The height and width of the smallest random window in training, as a share of the image's; None for no
            augmentation.
        batch_size: Images per batch.
        num_workers: Worker processes of each loader.

    Attributes:
        skipped: The reason why each image was left out, by its name; filled by `setup`.
    """

    def __init__(
        self,
        images: str,
        masks: str,
        classes: int,
        true_masks: str | None = None,
        splits: tuple[str, str, str] = ("train", "val", "test"),
        size: int | tuple[int, int] = 224,
        mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        std: tuple[float, float, float] = (0.5, 0.5, 0.5),
        smallest: float | None = 0.5,
        batch_size: int = 16,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.images = Path(images)
        self.masks = Path(masks)
        self.true_masks = self.masks if true_masks is None else Path(true_masks)
        self.split_names = dict(zip(SPLITS, splits, strict=True))
        shape = (size, size) if isinstance(size, int) else (size[0], size[1])
        self.plain = PixelSpec(classes, shape, mean, std)
        self.augmented = PixelSpec(classes, shape, mean, std, smallest)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.splits: dict[str, PixelDataset] = {}
        self.skipped: dict[str, str] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read the lists and find the files, once.

        Raises:
            FileNotFoundError: A folder is missing, or there is no list of training images.
            ValueError: No training image has a usable mask.
        """
        if self.splits:
            return
        pictures = find_pictures(self.images)
        for split, name in self.split_names.items():
            root, spec = (self.masks, self.augmented) if split == "train" else (self.true_masks, self.plain)
            self.splits[split] = PixelDataset(self._usable(_names(root, name, split == "train"), root, pictures), spec)
        if not len(self.splits["train"]):
            raise ValueError(f"{self.masks}: no training image has a usable mask: {list(self.skipped.items())[:3]}")
        if self.skipped:
            first = "; ".join(f"{name}: {reason}" for name, reason in list(self.skipped.items())[:3])
            warnings.warn(f"{len(self.skipped)} images are left out ({first})", WrappedWarning, stacklevel=2)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of shuffled training images."""
        return loader(self.splits["train"], self.batch_size, self.num_workers, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the validation images in the list's order."""
        return loader(self.splits["val"], self.batch_size, self.num_workers)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the test images in the list's order."""
        return loader(self.splits["test"], self.batch_size, self.num_workers)

    def _usable(self, names: Sequence[str], root: Path, pictures: dict[str, Path]) -> list[tuple[str, Path, Path]]:
        usable = []
        for name in names:
            mask = root / "SegmentationClass" / f"{name}.png"
            reason = self._unusable(pictures.get(name), mask)
            if reason is None:
                usable.append((name, pictures[name], mask))
            else:
                self.skipped[name] = reason
        return usable

    def _unusable(self, image: Path | None, mask: Path) -> str | None:
        """Return why a pair cannot be used; None if it can."""
        if image is None:
            return f"no image in {self.images}"
        if not mask.is_file():
            return f"no mask {mask}"
        try:
            image_size = picture_size(image)
            regions = open_picture(mask)
            to_values(regions, (1, 1))
        except ValueError as error:
            return str(error)
        resized = self.plain.size[::-1]
        if regions.size not in (image_size, resized):
            return f"{mask} has size {regions.size}, but {image} has {image_size} and is resized to {resized}"
        return None


def _names(root: Path, split: str, needed: bool) -> list[str]:
    """Read the names in a split's list."""
    path = root / "ImageSets" / "Segmentation" / f"{split}.txt"
    if not path.is_file():
        if needed:
            raise FileNotFoundError(f"no list of the training images at {path}")
        return []
    return read_text(path).split()
