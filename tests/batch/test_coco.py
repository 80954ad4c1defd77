"""COCO's run lengths by their published definition, polygons pixel by pixel, and batches as torchvision gives them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.datasets import VisionDataset
from torchvision.transforms import v2

from lrptrain.batch import read_batch
from lrptrain.batch.coco import CocoAdapter, CocoTransforms, coco_mask, mask_of_polygons, mask_of_runs, run_lengths
from lrptrain.batch.forms import as_mapping


def runs_of(mask: np.ndarray) -> list[int]:
    """The definition: columns one after the other, lengths of runs of 0 and 1 in turn, the first of 0."""
    runs = [0]
    value = 0
    for pixel in mask.T.flatten().tolist():
        if pixel != value:
            runs.append(0)
            value = pixel
        runs[-1] += 1
    return runs


def compressed(runs: list[int]) -> str:
    """COCO's compression, written from its description."""
    text = ""
    for i, run in enumerate(runs):
        number = run - runs[i - 2] if i > 2 else run
        while True:
            group = number & 31
            number >>= 5
            # The last group: what remains is the sign, and the group's highest bit is it.
            last = number == (-1 if group & 16 else 0)
            text += chr(48 + (group if last else group | 32))
            if last:
                break
    return text


def test_run_lengths_by_the_published_examples():
    # The two rows of the documentation of COCO's mask API, as images of one column.
    assert mask_of_runs([2, 3, 1, 1], (7, 1))[:, 0].tolist() == [False, False, True, True, True, False, True]
    assert mask_of_runs([0, 6, 1], (7, 1))[:, 0].tolist() == [True] * 6 + [False]
    # Down a column first: 3 rows of 2 columns.
    assert mask_of_runs([1, 3, 2], (3, 2)).tolist() == [[False, True], [True, False], [True, False]]
    # By hand: 2, 3, 1 are "2", "3", "1"; 1 is 3 - 2 = -2, in five bits 11110 = 30, "N"; 40 is 01000 and then 1.
    assert run_lengths("231N") == [2, 3, 1, 1]
    assert run_lengths(b"X1") == [40]
    with pytest.raises(ValueError, match="cover 6 pixels, and not 7 x 1"):
        mask_of_runs([2, 3, 1], (7, 1))
    for broken in ("2X", "2 3"):
        with pytest.raises(ValueError, match="no string of COCO's run lengths"):
            run_lengths(broken)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_run_lengths_give_back_what_was_encoded(share):
    generator = np.random.default_rng(0)
    for size in ((1, 1), (3, 70), (61, 47)):
        mask = generator.random(size) < share
        runs = runs_of(mask)
        assert run_lengths(compressed(runs)) == runs
        assert np.array_equal(mask_of_runs(runs, size), mask)
        assert np.array_equal(mask_of_runs(compressed(runs), size), mask)


def is_inside(polygon: list[float], x: float, y: float) -> bool:
    """Count the edges to the left of a point."""
    corners = list(zip(polygon[::2], polygon[1::2], strict=True))
    crossed = 0
    for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1], strict=True):
        if (y1 > y) != (y2 > y):
            crossed += x1 + (y - y1) * (x2 - x1) / (y2 - y1) < x
    return crossed % 2 == 1


def test_a_polygon_holds_the_pixels_whose_centres_lie_inside():
    generator = np.random.default_rng(0)
    for corners in (3, 4, 9, 9, 9):
        polygon = (generator.random(2 * corners) * 16 - 3).tolist()  # also beyond the picture, and across itself
        expected = [[is_inside(polygon, column + 0.5, row + 0.5) for column in range(12)] for row in range(9)]
        assert mask_of_polygons([polygon], (9, 12)).tolist() == expected
    # [2, 5) x [1, 3), as the box of these corners, also with corners at pixels' centres.
    square = mask_of_polygons([[2, 1, 5, 1, 5, 3, 2, 3]], (4, 6))
    assert np.argwhere(square).tolist() == [[1, 2], [1, 3], [1, 4], [2, 2], [2, 3], [2, 4]]
    assert mask_of_polygons([[0.5, 0.5, 2.5, 0.5, 2.5, 2.5, 0.5, 2.5]], (4, 4)).sum() == 4
    sliver = mask_of_polygons([[2.6, 1.6, 2.9, 1.6, 2.9, 1.9]], (4, 6))
    assert np.argwhere(sliver).tolist() == [[1, 2]]
    assert not mask_of_polygons([[20, 20, 30, 20, 30, 30]], (4, 6)).any()
    for broken in ([1.0, 2.0, 3.0, 4.0], [1.0] * 7, [float("nan")] * 6):
        with pytest.raises(ValueError, match="at least 3 corners"):
            mask_of_polygons([broken], (4, 6))


def square(x: int, y: int, side: int, category: int = 1, **others: Any) -> dict[str, Any]:
    polygon = [x, y, x + side, y, x + side, y + side, x, y + side]
    return {"segmentation": [polygon], "bbox": [x, y, side, side], "category_id": category, "iscrowd": 0, **others}


def crowd(mask: np.ndarray, category: int = 1) -> dict[str, Any]:
    segmentation = {"counts": runs_of(mask), "size": list(mask.shape)}
    return {"segmentation": segmentation, "category_id": category, "iscrowd": 1, "image_id": 7}


def test_objects_of_an_image_together():
    lower = np.zeros((4, 6), dtype=bool)
    lower[2:] = True
    objects = [square(0, 0, 2), square(3, 1, 2, category=5), crowd(lower)]
    assert coco_mask(objects, (4, 6)).tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [255, 255, 255, 1, 1, 255],
        [255] * 6,
    ]
    assert coco_mask(objects, (4, 6), [5]).sum() == 4
    assert coco_mask(objects, (4, 6), [8]).sum() == 0
    assert (coco_mask([], (4, 6)) == 255).all()
    # A data set of boxes alone has no polygons.
    assert torch.equal(coco_mask([{**objects[0], "segmentation": []}], (4, 6)), coco_mask(objects[:1], (4, 6)))
    with pytest.raises(ValueError, match="another size"):
        coco_mask(objects, (6, 4))
    with pytest.raises(ValueError, match="needs 'segmentation' or 'bbox'"):
        coco_mask([{"category_id": 1}], (4, 6))


class Pictures(VisionDataset):
    """A folder as `CocoDetection` reads it, without the library that parses its file there."""

    def __init__(self, root: Path, **transforms: Any) -> None:
        super().__init__(root, **transforms)
        content = json.loads((root / "instances.json").read_text())
        self.imgs = {each["id"]: each for each in content["images"]}
        self.annotations = content["annotations"]

    def __len__(self) -> int:
        return len(self.imgs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = sorted(self.imgs)[index]
        image = Image.open(Path(self.root) / self.imgs[picture]["file_name"]).convert("RGB")
        target = [each for each in self.annotations if each["image_id"] == picture]
        return self.transforms(image, target) if self.transforms is not None else (image, target)


@pytest.fixture
def folder(tmp_path):
    """Pictures of three sizes, white where an object of category 18 is; the last has no object."""
    images = []
    annotations: list[dict[str, Any]] = []
    for picture, (height, width) in {3: (32, 32), 7: (64, 64), 9: (16, 16)}.items():
        pixels = np.zeros((height, width, 3), dtype=np.uint8)
        images.append({"id": picture, "file_name": f"{picture}.png", "height": height, "width": width})
        if picture != 9:
            pixels[: height // 2, : width // 2] = 255
            annotations.append(square(0, 0, height // 2, category=18, image_id=picture))
        Image.fromarray(pixels).save(tmp_path / f"{picture}.png")
    (tmp_path / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    return tmp_path


def zipped(samples: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*samples, strict=True))


TO_TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


@pytest.mark.parametrize("collate", [zipped, list])
def test_batches_of_resized_pictures(folder, collate):
    data = Pictures(folder, transform=v2.Compose([v2.Resize((32, 32), v2.InterpolationMode.NEAREST), *TO_TENSOR]))
    adapter = CocoAdapter(images=data.imgs, categories=[5, 18])
    (batch,) = DataLoader(data, batch_size=3, collate_fn=collate)
    columns = read_batch(batch, adapter)
    assert columns["label"].tolist() == [1, 1, -1]
    assert (columns["mask"][2] == 255).all()
    assert torch.equal(columns["mask"][:2].float(), columns["image"][:2, 0])  # white is where the objects are
    assert "label" not in read_batch(batch, CocoAdapter(images=data.imgs))
    with pytest.raises(ValueError, match=r"pass CocoAdapter\(images=dataset.coco.imgs\)"):
        CocoAdapter()(batch)


def test_a_picture_of_another_shape_was_cropped_or_stretched(folder):
    data = Pictures(folder, transform=v2.Compose([v2.Resize((32, 48)), *TO_TENSOR]))
    (batch,) = DataLoader(data, batch_size=3, collate_fn=zipped)
    with pytest.raises(ValueError, match="would be stretched"):
        CocoAdapter(images=data.imgs)(batch)
    mask = CocoAdapter(images=data.imgs, stretched=True)(batch)["mask"]
    assert mask.shape == (3, 32, 48)
    assert (mask[:2] == 1).sum((1, 2)).tolist() == [16 * 24] * 2
    with pytest.raises(ValueError, match="tensors of one size"):
        CocoAdapter()(((torch.rand(3, 4, 4), torch.rand(3, 5, 5)), ([], [])))


def test_transforms_move_image_and_mask_together(folder):
    """A crop and a flip: white stays where the evidence is. The default collate stacks what comes out."""
    moving = v2.Compose([v2.CenterCrop((16, 16)), v2.RandomHorizontalFlip(1.0), *TO_TENSOR])
    data = Pictures(folder, transforms=CocoTransforms(moving, categories=[18]))
    (batch,) = DataLoader(data, batch_size=3)
    columns = read_batch(batch)
    assert columns["label"].tolist() == [0, 0, -1]
    assert torch.equal(columns["mask"][:2].float(), columns["image"][:2, 0])
    assert columns["mask"][0, 0].tolist() == [0] * 8 + [1] * 8
    assert (columns["mask"][2] == 255).all()
    unlabelled = Pictures(folder, transforms=CocoTransforms(moving))[0]
    assert "label" not in as_mapping(unlabelled)


def test_targets_that_torchvision_has_wrapped():
    masks = torch.zeros(2, 8, 8, dtype=torch.uint8)
    masks[0, :4] = 1
    masks[1, 6:] = 1
    target = {"image_id": 3, "masks": tv_tensors.Mask(masks), "labels": torch.tensor([18, 5])}
    batch = ((torch.rand(3, 8, 8), torch.rand(3, 8, 8)), (target, {"image_id": 4}))
    both = CocoAdapter()(batch)
    assert torch.equal(both["mask"][0], (masks[0] | masks[1]))
    assert (both["mask"][1] == 255).all()
    dogs = CocoAdapter(categories=[5, 18], label=lambda objects: 18 if objects else None)(batch)
    assert dogs["label"].tolist() == [1, -1]
    assert torch.equal(dogs["mask"][0], masks[0])
    with pytest.raises(ValueError, match="no 'masks'"):
        CocoAdapter()((torch.rand(1, 3, 8, 8), ({"labels": torch.tensor([1])},)))
