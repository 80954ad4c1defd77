"""Folders in the form of Pascal VOC and of COCO: images of several classes, with a mask of the classes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.coco import Objects, coco_mask
from lrptrain.data.common import SPLITS, SplitDataModule
from lrptrain.data.pictures import array_picture, open_picture, read_mask, stem, to_image, to_values
from lrptrain.files import read_text

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
Size = tuple[int, int]


@dataclass(frozen=True)
class SceneFile:
    """An image of several classes: its name and file, the numbers of its classes, and what reads their mask.

    That takes the size of the mask, and the size of the image in the file, which the mask has to have there.
    """

    name: str
    image: Path
    classes: frozenset[int]
    mask: Callable[[Size, Size], UInt8[Tensor, "height width"]]


@dataclass(frozen=True)
class SceneDataset(Dataset[dict[str, Any]]):
    """Dicts of `image`, `label` (0 or 1 per class), `mask` (0 background, 1 + class, 255 ignored) and `sample_id`."""

    scenes: Sequence[SceneFile]
    classes: int
    size: Size
    mean: Float[Tensor, "3 1 1"]
    std: Float[Tensor, "3 1 1"]

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        scene = self.scenes[index]
        label = torch.zeros(self.classes)
        label[sorted(scene.classes)] = 1.0
        picture = open_picture(scene.image)
        mask = scene.mask(self.size, picture.size[::-1])
        image = (to_image(picture, self.size) - self.mean) / self.std
        return {"image": image, "label": label, "mask": mask, "sample_id": scene.name}


class SegmentationFolder(SplitDataModule):
    """What the folders have in common; batches hold `image`, `label` `[batch, classes]`, `mask` and `sample_id`.

    Args:
        root: The folder.
        splits: The names of training, validation and test images in it; None for no test images.
        size: Side or `(height, width)` in pixels to which images and masks are resized.
        mean: The mean of each RGB channel, for values in 0..1.
        std: The standard deviation of each RGB channel, for values in 0..1.
        batch_size: Images per batch.
        num_workers: Worker processes of each loader.
    """

    def __init__(
        self,
        root: str,
        splits: tuple[str, str, str | None] = ("train", "val", None),
        size: int | Size = 224,
        mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        std: tuple[float, float, float] = (0.5, 0.5, 0.5),
        batch_size: int = 32,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers)
        self.root = Path(root)
        self.split_names = dict(zip(SPLITS, splits, strict=True))
        self.size = (size, size) if isinstance(size, int) else (size[0], size[1])
        self.mean, self.std = (torch.tensor(list(x))[:, None, None] for x in (mean, std))

    def scenes_of(self, split: str) -> list[SceneFile]:
        """Find the images of a split, by the name that the folder has for it, and the classes."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        """Find the files, once."""
        for split, name in self.split_names.items():
            if name is not None and split not in self.splits:
                scenes = self.scenes_of(name)
                self.splits[split] = SceneDataset(scenes, self.num_classes, self.size, self.mean, self.std)


class VOCFolder(SegmentationFolder):
    """A folder like `VOCdevkit/VOC2012`.

    It holds `JPEGImages/<name>.jpg`, `ImageSets/<lists>/<split>.txt`, `Annotations/<name>.xml` with the objects, and
    masks `<masks>/<name>.png` (1 + class, 255 ignored). An image without a mask has 255 everywhere; where no object is
    named, its classes are those of its mask.

    Args:
        root: The folder.
        classes: The names of the classes, in the order of the masks' numbers, of which the first is 1.
        lists: The folder of the lists, which `splits` names: `("train", "val", None)` by default.
        masks: The folder of the masks.
        **options: `splits`, `size` (224), `mean`, `std`, `batch_size` (32) and `num_workers`, as of `ImageMaskFolder`.
    """

    def __init__(
        self,
        root: str,
        classes: Sequence[str] = VOC_CLASSES,
        lists: str = "Segmentation",
        masks: str = "SegmentationClass",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.save_hyperparameters(logger=False)
        self.lists, self.masks = lists, masks
        self.class_names = list(classes)
        if "background" in self.class_names:
            raise ValueError("classes are those of the objects: the background is 0 in the masks, and no class")

    def scenes_of(self, split: str) -> list[SceneFile]:
        """Find the images of a list.

        Raises:
            FileNotFoundError: If there is no such list, or an image is missing.
            ValueError: If an object is of an unknown class, or nothing says what an image shows.
        """
        listed = self.root / "ImageSets" / self.lists / f"{split}.txt"
        if not listed.is_file():
            raise FileNotFoundError(f"no list {listed}: name its folder by `lists`, and the lists by `splits`")
        # A list of one class has a second column, whether an image shows it: all of its images are taken.
        names = [re.sub(r"\s+-?[01]$", "", line.strip()) for line in read_text(listed).splitlines() if line.strip()]
        if not names:
            raise ValueError(f"{listed} names no image")
        return [self._scene(name) for name in names]

    def _scene(self, name: str) -> SceneFile:
        image, mask = self.root / "JPEGImages" / f"{name}.jpg", self.root / self.masks / f"{name}.png"
        if not image.is_file():
            raise FileNotFoundError(f"no image {image}")

        def read(size: Size, full: Size) -> Tensor:
            if not mask.is_file():
                return torch.full(size, IGNORED, dtype=torch.uint8)
            return to_values(array_picture(read_mask(mask, full, self.num_classes)), size).to(torch.uint8)

        return SceneFile(name, image, self._classes(self.root / "Annotations" / f"{name}.xml", mask), read)

    def _classes(self, objects: Path, mask: Path) -> frozenset[int]:
        if objects.is_file():
            try:
                root = ElementTree.fromstring(objects.read_bytes())  # which know their encoding
            except ElementTree.ParseError as error:
                raise ValueError(f"{objects} is no XML file: {error}") from error
            names = {str(each.findtext("{*}name")) for each in root.iter() if each.tag.rpartition("}")[2] == "object"}
            if unknown := sorted(names - set(self.class_names)):
                raise ValueError(f"{objects} has the classes {unknown}: name all of them by `classes`")
            if names or not mask.is_file():
                return frozenset(map(self.class_names.index, names))
        if not mask.is_file():
            raise ValueError(f"nothing says what an image shows: neither {objects} nor {mask} is there")
        values = read_mask(mask, classes=self.num_classes).unique().tolist()
        return frozenset(value - 1 for value in values if value not in (0, IGNORED))


class COCOFolder(SegmentationFolder):
    """A folder like COCO's: `<images>/<split>/<file_name>` and `<annotations>`, such as `instances_{split}.json`.

    Masks are drawn of polygons and run lengths, small objects on top of large ones; crowds are ignored.

    Args:
        root: The folder.
        splits: The names of training, validation and test images; None for no test images.
        annotations: The files of the annotations, relative to `root`, with `{split}`.
        images: The folders of the images, relative to `root`, with `{split}`.
        **options: `size` (224), `mean`, `std`, `batch_size` (32) and `num_workers`, as of `ImageMaskFolder`.
    """

    def __init__(
        self,
        root: str,
        splits: tuple[str, str, str | None] = ("train2017", "val2017", None),
        annotations: str = "annotations/instances_{split}.json",
        images: str = "{split}",
        **options: Any,
    ) -> None:
        super().__init__(root, splits, **options)
        self.save_hyperparameters(logger=False)
        self.annotations, self.images = annotations, images

    def scenes_of(self, split: str) -> list[SceneFile]:
        """Read the annotations of a split.

        Raises:
            FileNotFoundError: If there are none, or an image is missing.
            ValueError: If the categories are not those of the other splits.
        """
        path = self.root / self.annotations.format(split=split)
        if not path.is_file():
            raise FileNotFoundError(f"no annotations {path}: name them by `annotations` and `splits`")
        said = json.loads(path.read_bytes())  # of COCO itself 450 MB
        if not isinstance(said, dict) or not {"images", "annotations", "categories"} <= said.keys():
            raise ValueError(f"{path} has no images, annotations and categories: name a file such as instances_{split}")
        categories = {each["id"]: each["name"] for each in sorted(said["categories"], key=lambda each: each["id"])}
        if self.class_names and self.class_names != list(categories.values()):
            raise ValueError(f"{path} has other categories than the first split: {', '.join(categories.values())}")
        self.class_names = list(categories.values())
        if len({*self.class_names}) < len(said["categories"]) or len(self.class_names) >= IGNORED:
            raise ValueError(
                f"{path} has two categories of one name or id, or {IGNORED} of them, which masks cannot hold"
            )
        numbers = {identity: number for number, identity in enumerate(categories)}
        objects: dict[Any, list[Mapping[str, Any]]] = {each["id"]: [] for each in said["images"]}
        for each in said["annotations"]:
            if each["image_id"] not in objects or each["category_id"] not in numbers:
                raise ValueError(
                    f"{path}: an annotation is of the image {each['image_id']!r} and the category "
                    f"{each['category_id']!r}, and one of them is not listed"
                )
            objects[each["image_id"]].append(each)
        folder = self.root / self.images.format(split=split)
        return [_coco_scene(folder, each, objects[each["id"]], numbers) for each in said["images"]]


def _coco_scene(folder: Path, image: Mapping[str, Any], objects: Objects, numbers: Mapping[int, int]) -> SceneFile:
    name = image["file_name"]
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"no image {path}")

    def read(size: Size, full: Size) -> Tensor:
        if (image["height"], image["width"]) != full:
            raise ValueError(f"{path} has {full} pixels, and its annotations were made for another size")
        mask = torch.zeros(full, dtype=torch.uint8)
        # Crowds first, so that what was marked one by one stands on top of them.
        for each in sorted(objects, key=lambda each: (not each.get("iscrowd"), -(each.get("area") or 0.0))):
            drawn = coco_mask([each], full)
            mask[drawn > 0] = IGNORED if each.get("iscrowd") else 1 + numbers[each["category_id"]]
        return to_values(array_picture(mask), size).to(torch.uint8)

    return SceneFile(stem(name), path, frozenset(numbers[each["category_id"]] for each in objects), read)
