"""Samples of different sizes: groups that can be stacked, and sources brought to a size."""

import torch

from lrptrain.batch import Sample
from lrptrain.batch.sizes import by_size, fitted, size_of


def image(height: int, width: int, **others: torch.Tensor) -> Sample:
    return Sample(0, 0, {"image": torch.rand(3, height, width), **others})


def test_samples_of_one_size_are_batches_in_their_order():
    assert by_size([image(4, 4)] * 5, 2) == [[0, 1], [2, 3], [4]]


def test_samples_of_several_sizes_all_stand_in_one_group():
    samples = [image(4, 4), image(8, 4), image(4, 4), image(8, 4), image(4, 4)]
    assert by_size(samples, 2) == [[0, 2], [4], [1, 3]]


def test_texts_have_no_size():
    texts = [Sample(0, 0, {"input_ids": torch.ones(length, dtype=torch.long)}) for length in (2, 5)]
    assert by_size(texts, 2) == [[0, 1]]


def test_a_source_of_the_same_size_is_itself():
    source = image(4, 4)
    assert fitted(source, image(4, 4)) is source


def test_a_source_gives_the_same_place_as_a_share_of_the_way():
    corner = torch.zeros(8, 12, dtype=torch.uint8)
    corner[4:, 6:] = 1
    source = image(8, 12, mask=corner, boxes=torch.tensor([[6.0, 4.0, 12.0, 8.0]]))
    source.tensors["image"][:] = corner
    taker = image(4, 4, mask=torch.zeros(4, 4, dtype=torch.uint8))
    given = fitted(source, taker)
    assert size_of(given) == size_of(taker)
    expected = torch.zeros(4, 4, dtype=torch.uint8)
    expected[2:, 2:] = 1
    assert torch.equal(given.tensors["mask"], expected)
    assert given.tensors["boxes"].tolist() == [[2, 2, 4, 4]]
    assert given.tensors["image"][0, -1, -1] == 1
    assert given.tensors["image"][0, 0, 0] == 0


def test_masks_with_regions_and_volumes_are_brought_along():
    regions = image(8, 8, mask=torch.ones(2, 8, 8, dtype=torch.uint8))
    given = fitted(regions, image(4, 6, mask=torch.zeros(2, 4, 6, dtype=torch.uint8)))
    assert given.tensors["mask"].shape == (2, 4, 6)
    volume = Sample(0, 0, {"image": torch.rand(1, 4, 8, 8), "mask": torch.ones(4, 8, 8)})
    taker = Sample(0, 0, {"image": torch.rand(1, 2, 4, 6), "mask": torch.ones(2, 4, 6)})
    assert size_of(fitted(volume, taker)) == size_of(taker)
    video = Sample(0, 0, {"image": torch.rand(6, 3, 8, 8), "mask": torch.ones(6, 8, 8)})
    taker = Sample(0, 0, {"image": torch.rand(8, 3, 4, 6), "mask": torch.ones(8, 4, 6)})
    assert size_of(fitted(video, taker)) == size_of(taker)


def test_rows_stay_as_they_are():
    rows = Sample(0, 0, {"image": torch.rand(7, 3)})
    assert fitted(rows, Sample(0, 0, {"image": torch.rand(2, 3)})) is rows
