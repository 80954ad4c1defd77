"""A folder of images and segmentation masks with a CSV of labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lrptrain.batch.annotations import IGNORED
from lrptrain.data.common import SPLITS, CsvRow, SplitDataModule, class_names, read_csv, stratified_split
from lrptrain.data.pictures import find_pictures, open_picture, stem, to_image, to_values


@dataclass(frozen=True)
class ImageSpec:
    """How a file becomes a tensor.

    Attributes:
        size: Height and width in pixels.
        mean: The mean of each RGB channel, which is subtracted from values in 0..1.
        std: The standard deviation of each RGB channel, by which the difference is divided.
        evidence_values: Values of a mask file that are evidence.
        ignore_values: Values of a mask file that are to be ignored; all other values are no evidence.
    """

    size: tuple[int, int]
    mean: Sequence[float]
    std: Sequence[float]
    evidence_values: Sequence[int]
    ignore_values: Sequence[int]

    def __post_init__(self) -> None:
        both = set(self.evidence_values) & set(self.ignore_values)
        if both:
            raise ValueError(f"mask values {sorted(both)} cannot be both evidence and ignored")

    def load(
        self, image: Path, mask: Path | None
    ) -> tuple[Float[Tensor, "3 height width"], UInt8[Tensor, "height width"]]:
        """Return the normalised image and its mask: 1 evidence, 0 not, 255 ignored; all 255 without a mask file."""
        picture = open_picture(image)
        mean = torch.tensor(self.mean)[:, None, None]
        std = torch.tensor(self.std)[:, None, None]
        pixels = (to_image(picture, self.size) - mean) / std
        if mask is None:
            return pixels, torch.full(self.size, IGNORED, dtype=torch.uint8)
        regions = open_picture(mask)
        # Checked before both are resized: afterwards a mask of another shape would look as if it fitted.
        if regions.size != picture.size:
            raise ValueError(f"{mask} has size {regions.size}, but {image} has {picture.size}")
        return pixels, self._evidence(to_values(regions, self.size))

    def _evidence(self, values: Integer[Tensor, "height width"]) -> UInt8[Tensor, "height width"]:
        evidence = torch.isin(values, torch.tensor(self.evidence_values)).to(torch.uint8)
        return evidence.masked_fill(torch.isin(values, torch.tensor(self.ignore_values)), IGNORED)


@dataclass(frozen=True)
class LabelledImage:
    """One row of the table with its files."""

    image: Path
    mask: Path | None
    label: int
    group: int | None


class ImageMaskDataset(Dataset[dict[str, Any]]):
    """Dicts of `image`, `mask`, `label`, `sample_id` (index in this dataset) and, if the table has it, `group`."""

    def __init__(self, samples: Sequence[LabelledImage], spec: ImageSpec) -> None:
        self.samples = samples
        self.spec = spec

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self.samples[index]
        image, mask = self.spec.load(sample.image, sample.mask)
        item = {"image": image, "mask": mask, "label": sample.label, "sample_id": index}
        return item if sample.group is None else {**item, "group": sample.group}


class ImageMaskFolder(SplitDataModule):
    """Images in one folder, masks of the same names in another, labels and splits in a CSV file.

    `class_names` and `num_classes` are known after `setup`. An image without a mask file counts as not annotated.

    Examples:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from lrptrain.data import ImageMaskFolder
        >>> for name in ("images/tom", "images/rex", "masks/rex"):
        ...     Path(f"pets/{name}").parent.mkdir(parents=True, exist_ok=True)
        ...     Image.new("L", (8, 8), 1).save(f"pets/{name}.png")
        >>> _ = Path("pets/labels.csv").write_text(chr(10).join(["name,label,split", "tom,cat,train", "rex,dog,val"]))
        >>> data = ImageMaskFolder("pets", size=8)
        >>> data.setup()
        >>> next(iter(data.val_dataloader()))["mask"].shape
        torch.Size([1, 8, 8])

    Args:
        root: The folder that holds everything below.
        table: CSV with a header, relative to `root`.
        images: Folder of the images, relative to `root`.
        masks: Folder of the masks (`<name>.png`, of the image's size), relative to `root`; `None` if there are none.
        name_column: Column of the image names, with or without the ending.
        label_column: Column of the class names.
        split_column: Column of the split names.
        group_column: Column of integer group ids, if any.
        splits: Names in `split_column` of the training, validation and test split. Where training and validation have
            one name, its images are divided at random, by class.
        val_share: Share (0..1) of them for validation, in that case.
        seed: Seed of that division.
        labels: Keep only these classes, in this order; by default all of them, sorted.
        size: Side or `(height, width)` in pixels to which images and masks are resized.
        mean: The mean of each RGB channel, for values in 0..1.
        std: The standard deviation of each RGB channel, for values in 0..1.
        evidence_values: Values of a mask file that are evidence.
        ignore_values: Values of a mask file that are to be ignored; all other values are no evidence.
        batch_size: Images per batch.
        num_workers: Worker processes of each loader.
    """

    def __init__(
        self,
        root: str,
        table: str = "labels.csv",
        images: str = "images",
        masks: str | None = "masks",
        name_column: str = "name",
        label_column: str = "label",
        split_column: str = "split",
        group_column: str | None = None,
        splits: tuple[str, str, str] = ("train", "val", "test"),
        val_share: float = 0.2,
        seed: int = 0,
        labels: list[str] | None = None,
        size: int | tuple[int, int] = 224,
        mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        std: tuple[float, float, float] = (0.5, 0.5, 0.5),
        evidence_values: tuple[int, ...] = (1,),
        ignore_values: tuple[int, ...] = (3, 255),
        batch_size: int = 32,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers)
        self.save_hyperparameters(logger=False)
        self.table = Path(root) / table
        self.images = Path(root) / images
        self.masks = None if masks is None else Path(root) / masks
        self.split_names = dict(zip(SPLITS, splits, strict=True))
        height_width = (size, size) if isinstance(size, int) else (size[0], size[1])
        self.spec = ImageSpec(height_width, mean, std, evidence_values, ignore_values)

    def setup(self, stage: str | None = None) -> None:
        """Read the table and find the files, once.

        Raises:
            FileNotFoundError: A folder, the table or an image is missing.
            ValueError: A column or class is missing, a group is no integer, or no image has a mask.
        """
        if self.splits:
            return
        names = self.hparams
        label, split_column = names["label_column"], names["split_column"]
        rows = read_csv(self.table, (names["name_column"], label, split_column, names["group_column"]))
        self.class_names = class_names((row[label] for row in rows), names["labels"])
        # Rows of other classes need no files: they are left out before files are looked for.
        rows = [row for row in rows if row[label] in self.class_names]
        samples = self._samples(rows)
        for split, name in self.split_names.items():
            chosen = [sample for sample, row in zip(samples, rows, strict=True) if row[split_column] == name]
            self.splits[split] = ImageMaskDataset(chosen, self.spec)
        if self.split_names["train"] == self.split_names["val"]:
            # Until here both hold the same images.
            both = self.splits["train"].samples
            parts = stratified_split([sample.label for sample in both], names["val_share"], names["seed"])
            for split, part in zip(("train", "val"), parts, strict=True):
                self.splits[split] = ImageMaskDataset([both[i] for i in part], self.spec)

    def loader_of(self, split: str, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader of a split that has images.

        Raises:
            ValueError: If it has none.
        """
        if not len(self.splits[split]):
            name = self.split_names[split]
            column = self.hparams["split_column"]
            raise ValueError(f"{self.table}: no row has {column}={name!r}; see the argument `splits`")
        return super().loader_of(split, shuffle)

    def _samples(self, rows: Sequence[CsvRow]) -> list[LabelledImage]:
        names = [stem(row[self.hparams["name_column"]]) for row in rows]
        images = find_pictures(self.images)
        absent = [name for name in names if name not in images]
        if absent:
            raise FileNotFoundError(f"{self.images} has no image for {len(absent)} names, such as {absent[:3]}")
        masks = find_pictures(self.masks) if self.masks is not None else {}
        if self.masks is not None and masks.keys().isdisjoint(names):
            raise ValueError(f"{self.masks} has a mask for none of the images; pass masks=None if there are none")
        labels = [self.class_names.index(row[self.hparams["label_column"]]) for row in rows]
        groups = [_group(row, self.hparams["group_column"]) for row in rows]
        files = [(images[name], masks.get(name)) for name in names]
        return [LabelledImage(*own, label, group) for own, label, group in zip(files, labels, groups, strict=True)]


def _group(row: CsvRow, column: str | None) -> int | None:
    if column is None:
        return None
    try:
        return int(row[column])
    except ValueError as error:
        raise ValueError(f"{column!r} must be an integer, got {row[column]!r}") from error
