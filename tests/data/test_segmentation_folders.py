import json

import numpy as np
import pytest
import torch
from PIL import Image

from lrptrain.data import COCOFolder, VOCFolder
from lrptrain.data.pictures import write_mask

CLASSES = ("cat", "dog", "person")


def picture(path, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 6, 3), level, dtype=np.uint8)).save(path)


def listed(folder, split, *names):
    path = folder / "ImageSets" / "Segmentation" / f"{split}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(names) + "\n")


def annotated(folder, name, *objects):
    path = folder / "Annotations" / f"{name}.xml"
    path.parent.mkdir(exist_ok=True)
    inside = "".join(f"<object><name>{each}</name><difficult>0</difficult></object>" for each in objects)
    path.write_text(f"<annotation><folder>VOC</folder>{inside}</annotation>")


@pytest.fixture
def voc(tmp_path):
    """Image a has two dogs, b a person and a cat, c no XML file but a mask of a dog, d an XML file but no mask."""
    for name in "abcd":
        picture(tmp_path / "JPEGImages" / f"{name}.jpg", 50)
    listed(tmp_path, "train", "a", "b  1")  # lists of ImageSets/Main have a second column
    listed(tmp_path, "val", "c", "d")
    annotated(tmp_path, "a", "dog", "dog")
    annotated(tmp_path, "b", "person", "cat")
    annotated(tmp_path, "d", "cat")
    (tmp_path / "SegmentationClass").mkdir()
    for name, values in {"a": [2, 2, 0, 0, 255, 0], "b": [1, 1, 1, 3, 3, 3], "c": [0, 0, 2, 2, 2, 255]}.items():
        mask = torch.tensor(values, dtype=torch.uint8).expand(4, 6)
        write_mask(tmp_path / "SegmentationClass" / f"{name}.png", mask)
    return tmp_path


def test_voc_gives_labels_of_each_class_and_masks_of_classes(voc):
    data = VOCFolder(str(voc), classes=CLASSES, size=(4, 6), mean=(0.0,) * 3, std=(1.0,) * 3, batch_size=2)
    data.setup("fit")
    assert (data.num_classes, data.class_names, data.test_dataloader()) == (3, list(CLASSES), [])
    batch = next(iter(data.val_dataloader()))
    assert batch["sample_id"] == ["c", "d"]
    assert batch["label"].tolist() == [[0, 1, 0], [1, 0, 0]]  # by the mask, and by the objects
    assert batch["mask"][0].tolist() == [[0, 0, 2, 2, 2, 255]] * 4
    assert (batch["mask"][1] == 255).all()
    assert torch.allclose(batch["image"], torch.full((2, 3, 4, 6), 50 / 255), atol=1e-6)
    train = next(iter(data.train_dataloader()))
    assert dict(zip(train["sample_id"], train["label"].tolist(), strict=True)) == {"a": [0, 1, 0], "b": [1, 0, 1]}


def test_voc_says_what_is_missing(voc):
    with pytest.raises(FileNotFoundError, match=r"no list .*trainaug.txt"):
        VOCFolder(str(voc), splits=("trainaug", "val", None), classes=CLASSES).setup()
    with pytest.raises(ValueError, match=r"b.xml has the classes \['person'\]: name all of them by `classes`"):
        VOCFolder(str(voc), classes=("cat", "dog")).setup()
    (voc / "SegmentationClass" / "c.png").unlink()
    with pytest.raises(ValueError, match="nothing says what an image shows"):
        VOCFolder(str(voc), classes=CLASSES).setup()
    (voc / "JPEGImages" / "a.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"no image .*a.jpg"):
        VOCFolder(str(voc), classes=CLASSES).setup()


def test_voc_is_read_as_tools_write_it(voc):
    inside = "<a:object><a:name>cat</a:name></a:object>"
    said = f'<?xml version="1.0" encoding="ISO-8859-1"?><a:annotation xmlns:a="x">{inside}</a:annotation>'
    (voc / "Annotations" / "a.xml").write_bytes(said.encode("latin-1"))
    listed(voc, "train", "a -1", "b  1")
    data = VOCFolder(str(voc), classes=CLASSES, size=(4, 6))
    data.setup()
    assert [item["label"].tolist() for item in (data.splits["train"][i] for i in range(2))] == [[1, 0, 0], [1, 0, 1]]
    write_mask(voc / "SegmentationClass" / "a.png", torch.zeros(5, 5, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"a.png has size \(5, 5\), expected \(4, 6\)"):
        data.splits["train"][0]
    (voc / "Annotations" / "a.xml").write_text("<annotation><size/></annotation>")  # as tools leave it: the mask knows
    write_mask(voc / "SegmentationClass" / "a.png", torch.full((4, 6), 3, dtype=torch.uint8))
    data = VOCFolder(str(voc), classes=CLASSES, size=(4, 6))
    data.setup()
    assert data.splits["train"][0]["label"].tolist() == [0, 0, 1]
    (voc / "Annotations" / "a.xml").write_text("<annotation>")
    with pytest.raises(ValueError, match=r"a.xml is no XML file"):
        VOCFolder(str(voc), classes=CLASSES).setup()
    listed(voc, "train", "")
    with pytest.raises(ValueError, match="names no image"):
        VOCFolder(str(voc), classes=CLASSES).setup()
    with pytest.raises(ValueError, match="the background is 0 in the masks"):
        VOCFolder(str(voc), classes=("background", *CLASSES))


def test_the_classes_of_voc_are_its_twenty(voc):
    assert VOCFolder(str(voc)).num_classes == 20


def coco(folder, split, images, objects, categories=((3, "dog"), (1, "cat"))):
    for number, level in images.items():
        picture(folder / split / f"{number:012d}.jpg", level)
    said = {
        "images": [{"id": i, "file_name": f"{i:012d}.jpg", "height": 4, "width": 6} for i in images],
        "annotations": [{"id": i, "iscrowd": 0, **each} for i, each in enumerate(objects)],
        "categories": [{"id": i, "name": name} for i, name in categories],
    }
    path = folder / "annotations" / f"instances_{split}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(said))


LEFT = {"segmentation": [[0, 0, 4, 0, 4, 4, 0, 4]], "area": 16.0}  # columns 0 to 3
INSIDE = {"segmentation": {"size": [4, 6], "counts": [4, 4, 16]}, "area": 4.0}  # column 1
CROWD = {"segmentation": {"size": [4, 6], "counts": [12, 12]}, "area": 12.0, "iscrowd": 1}  # columns 3 to 5


def test_coco_draws_small_things_on_large_ones_and_ignores_crowds(tmp_path):
    objects = [
        {"image_id": 7, "category_id": 3, **INSIDE},
        {"image_id": 7, "category_id": 1, **LEFT},
        {"image_id": 7, "category_id": 1, **CROWD},
    ]
    coco(tmp_path, "train2017", {7: 100, 8: 200}, objects)
    coco(tmp_path, "val2017", {9: 10}, [{"image_id": 9, "category_id": 3, **LEFT}])
    data = COCOFolder(str(tmp_path), size=(4, 6), batch_size=2)
    data.setup()
    assert data.class_names == ["cat", "dog"]  # by their numbers
    batch = next(iter(data.train_dataloader()))
    at = batch["sample_id"].index("000000000007")
    assert batch["label"][at].tolist() == [1, 1]
    assert batch["mask"][at].tolist() == [[1, 2, 1, 1, 255, 255]] * 4
    assert batch["label"][1 - at].tolist() == [0, 0]
    assert (batch["mask"][1 - at] == 0).all()
    assert next(iter(data.val_dataloader()))["mask"][0].tolist() == [[2, 2, 2, 2, 0, 0]] * 4


def test_coco_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no annotations .*instances_train2017.json"):
        COCOFolder(str(tmp_path)).setup()
    coco(tmp_path, "train2017", {7: 100}, [])
    coco(tmp_path, "val2017", {9: 10}, [], categories=((1, "cat"),))
    with pytest.raises(ValueError, match="other categories than the first split: cat"):
        COCOFolder(str(tmp_path)).setup()
    path = tmp_path / "annotations" / "instances_train2017.json"
    right = path.read_text()
    for key, value in (("image_id", 99), ("category_id", 99)):
        path.write_text(
            json.dumps({**json.loads(right), "annotations": [{"image_id": 7, "category_id": 1, key: value}]})
        )
        with pytest.raises(ValueError, match=r"99.*and one of them is not listed"):
            COCOFolder(str(tmp_path)).setup()
    for name in ("cat", "dog"):
        path.write_text(right.replace('"cat"', f'"{name}"').replace('"dog"', f'"{name}"'))
        with pytest.raises(ValueError, match="two categories of one name"):
            COCOFolder(str(tmp_path)).setup()
    path.write_text(json.dumps([]))
    with pytest.raises(ValueError, match="no images, annotations and categories"):
        COCOFolder(str(tmp_path)).setup()
    path.write_text(right.replace('"height": 4', '"height": 8'))
    data = COCOFolder(str(tmp_path), splits=("train2017", "train2017", None))
    data.setup()
    with pytest.raises(ValueError, match="made for another size"):
        data.splits["train"][0]
    path.write_text(right)
    (tmp_path / "train2017" / "000000000007.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"no image .*7.jpg"):
        COCOFolder(str(tmp_path)).setup()
