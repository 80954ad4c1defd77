from itertools import count

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

from lrptrain.segmentation.config import PseudoMaskConfig
from lrptrain.segmentation.export import SeedGenerator
from lrptrain.segmentation.images import classes_of_labels, image_batches, read_images, true_masks

IMAGES = torch.rand(3, 3, 8, 8)
MASKS = torch.tensor([0, 1, 255], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8).clone()


def test_forms_of_batches():
    whole = read_images({"image": IMAGES, "label": torch.tensor([1, 0, -1]), "mask": MASKS, "sample_id": ["a", 4, "c"]})
    assert whole.names == ["a", 4, "c"]
    assert whole.masks is not None
    of_tuple = read_images((IMAGES, torch.zeros(3).long(), MASKS)).masks
    assert of_tuple is not None
    assert torch.equal(of_tuple, whole.masks)
    several = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    for batch in ({"pixel_values": IMAGES, "labels": several}, (IMAGES, several), (IMAGES, several, MASKS)):
        found = read_images(batch, count(10))
        assert torch.equal(classes_of_labels(found.labels, 3), several.bool())
        assert found.names == [10, 11, 12]
    assert read_images({"image": IMAGES}).labels is None
    assert read_images([IMAGES]).masks is None
    adapted = read_images({"x": IMAGES}, adapter=lambda batch: {"image": batch["x"]})
    assert torch.equal(adapted.rows([2]).images, IMAGES[2:])


@pytest.mark.parametrize("content", ["evidence", "classes"])
def test_a_mask_with_the_axis_that_images_have_is_read_as_one_without(content):
    labels = torch.tensor([1, 0, 1])
    plain, channel, regions = (
        read_images((IMAGES, labels, masks))
        for masks in (MASKS, MASKS[:, None], torch.stack([MASKS, torch.ones_like(MASKS)], 1))
    )
    present = classes_of_labels(labels, 2)
    expected = true_masks(plain, present, content)
    assert set(expected.unique().tolist()) > {255}
    assert torch.equal(true_masks(channel, present, content), expected)
    assert torch.equal(true_masks(channel.rows([1]), present[[1]], content), expected[[1]])
    if content == "evidence":
        assert torch.equal(true_masks(regions, present, content), expected)
    else:
        with pytest.raises(ValueError, match=r"mask \[3, 2, 8, 8\] must be \[batch, height, width\] of the classes$"):
            true_masks(regions, present, content)


def test_labels():
    assert classes_of_labels(torch.tensor([1, 0, -1]), 3).tolist() == [
        [False, True, False],
        [True, False, False],
        [False] * 3,
    ]
    # Of one logit the label says whether its class is there.
    assert classes_of_labels(torch.tensor([1, 0, -1]), 1).tolist() == [[True], [False], [False]]
    assert classes_of_labels(read_images({"image": IMAGES, "label": torch.ones(len(IMAGES))}).labels, 1).all()
    with pytest.raises(ValueError, match="label 2 is no class of the model, which has 1"):
        classes_of_labels(torch.tensor([2]), 1)
    with pytest.raises(ValueError, match="no label"):
        classes_of_labels(None, 3)
    with pytest.raises(ValueError, match="label 3 is no class"):
        classes_of_labels(torch.tensor([3]), 3)
    with pytest.raises(ValueError, match="labels have 2 classes, the model has 3"):
        classes_of_labels(torch.zeros(1, 2), 3)


def test_evidence_is_of_the_one_class():
    given = read_images({"image": IMAGES, "mask": torch.stack([MASKS[1]] * 3)})
    present = torch.tensor([[0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool()
    found = true_masks(given, present, "evidence")
    assert [mask.unique().tolist() for mask in found] == [[2], [255], [255]]


def test_masks_of_classes_and_of_another_size():
    masks = torch.tensor([[[0, 3], [255, 1]]] * 3, dtype=torch.uint8)
    given = read_images({"image": IMAGES, "mask": masks})
    found = true_masks(given, torch.ones(3, 3).bool(), "classes")
    assert found.shape == (3, 8, 8)
    assert torch.equal(found[:, ::4, ::4], masks)
    assert true_masks(read_images([IMAGES]), torch.ones(3, 3).bool(), "classes").unique().tolist() == [255]


def test_bad_batches():
    with pytest.raises(ValueError, match=r"value 3: 0\.\.1 and 255 .* or masks='classes'"):
        true_masks(read_images({"image": IMAGES, "mask": 3 * MASKS[[0, 1, 1]]}), torch.ones(3, 3).bool(), "evidence")
    with pytest.raises(ValueError, match=r"value 3: 0\.\.2 and 255"):
        true_masks(read_images({"image": IMAGES, "mask": 3 * MASKS[[0, 1, 1]]}), torch.ones(3, 2).bool(), "classes")
    with pytest.raises(ValueError, match="seeds are made of images"):
        read_images({"input_ids": torch.ones(2, 4).long()})
    with pytest.raises(ValueError, match=r"differ in length: \{'image': 3, 'label': 2\}"):
        read_images({"image": IMAGES, "label": torch.zeros(2, 3)})


class Numbers(Dataset):
    """Image i is i throughout."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {"image": torch.full((3, 2, 2), float(index)), "label": index}


class Stream(IterableDataset):
    def __iter__(self):
        return (Numbers()[index] for index in range(5))


def seen(loader):
    found = list(image_batches(loader))
    names = [name for each in found for name in each.names]
    values = [int(image[0, 0, 0]) for each in found for image in each.images]
    return names, values


@pytest.mark.parametrize("shuffle", [False, True])
def test_images_come_in_the_order_of_the_dataset(shuffle):
    assert seen(DataLoader(Numbers(), batch_size=2, shuffle=shuffle)) == (list(range(7)), list(range(7)))
    # What a training loader leaves out at the end of an epoch is exported, too.
    assert seen(DataLoader(Numbers(), batch_size=2, shuffle=shuffle, drop_last=True)) == (list(range(7)),) * 2


def test_samplers_of_ones_own_and_streams():
    loader = DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([5, 1, 3]))
    names, values = seen(loader)
    assert names == values == [1, 3, 5]  # the same names whatever else the sampler gives
    assert seen(DataLoader(Stream(), batch_size=2)) == (list(range(5)), list(range(5)))
    assert seen([{"image": torch.zeros(2, 3, 2, 2)}]) == ([0, 1], [0, 0])


def test_random_states_of_the_loader_are_left_alone():
    own = torch.Generator().manual_seed(5)
    for sampler in (None, SubsetRandomSampler(range(7), generator=own)):
        loader = DataLoader(Numbers(), batch_size=2, shuffle=sampler is None, sampler=sampler, generator=own)
        before = own.get_state()
        seen(loader)
        assert torch.equal(own.get_state(), before)


def test_one_logit_shows_its_class_where_it_is_positive():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 1))
    image = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    found = SeedGenerator(model, PseudoMaskConfig(present="predicted"), 1).present(read_images({"image": image}))
    assert torch.equal(found, model(image) > 0)
    assert 0 < found.sum() < 8
