"""The edge swap: which pixels it exchanges, and whom that moves."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.edges import WIDTH, along_edges, swap_edges
from lrptrain.intervention.statistics import value_range


@pytest.mark.parametrize("size", [(48, 48), (24, 40), (7, 9), (2, 3), (1, 1)])
def test_the_edges_are_what_lies_nearer_to_a_side_than_an_eighth_of_it(size):
    rows, columns = np.indices(size)

    def near(index, side):
        # Pixel i covers the numbers from i to i + 1: it counts if any of it lies in the first or last eighth.
        return (index < side * WIDTH) | (index + 1 > side - side * WIDTH)

    expected = near(rows, size[0]) | near(columns, size[1])
    np.testing.assert_array_equal(along_edges(size).numpy(), expected)


def test_what_lies_along_the_edges_is_the_donors_and_the_rest_stays():
    generator = torch.Generator().manual_seed(0)
    images, donors = (torch.rand(3, 2, 16, 24, generator=generator) for _ in range(2))
    swapped = swap_edges(images, donors, value_range(list(images)))
    inner = (slice(None), slice(None), slice(2, 14), slice(3, 21))
    assert torch.equal(swapped[inner], images[inner])
    restored = swapped.clone()
    restored[inner] = donors[inner]
    assert torch.equal(restored, donors)
    assert torch.equal(swap_edges(images, images), images)


class ReadsTheBrightestCorner(torch.nn.Module):
    """The class is the colour of a dot in any corner."""

    def forward(self, image):
        corners = torch.stack([image[..., :4, :4], image[..., :4, -4:], image[..., -4:, :4], image[..., -4:, -4:]], 1)
        return 20 * corners[:, :, :2].amax((1, 3, 4))


class ReadsTheMiddle(torch.nn.Module):
    def forward(self, image):
        return 20 * image[:, :2, 12:20, 12:20].amax((2, 3))


def dotted(count=24):
    """A dot of the class's colour in a random corner, and one in the middle."""
    rng = np.random.default_rng(0)
    samples = []
    for i in range(count):
        image = torch.zeros(3, 32, 32)
        top, left = rng.integers(0, 2, 2) * 29
        image[i % 2, top : top + 3, left : left + 3] = 1
        image[i % 2, 14:17, 14:17] = 1
        samples.append(Sample(i, i % 2, {"image": image}))
    return samples


def moved(model):
    samples = dotted()
    with torch.no_grad():
        probabilities = model(torch.stack([each.tensors["image"] for each in samples])).softmax(1).numpy()
    rows = np.arange(len(samples))
    return effects(
        model, samples, rows=rows, computed_rows=rows, region=Region("edges"), probabilities=probabilities,
        grid=(4, 4), config=InterventionConfig(batch_size=7),
    )  # fmt: skip


def test_who_reads_a_dot_in_any_corner_is_moved_by_another_class_alone():
    change, control = moved(ReadsTheBrightestCorner())
    assert change.min() > 0.99
    assert abs(control).max() < 1e-6


def test_who_reads_the_middle_is_not_moved():
    change, control = moved(ReadsTheMiddle())
    assert abs(change).max() < 1e-6
    assert abs(control).max() < 1e-6


def test_edges_are_swapped_whatever_was_configured():
    for strategy in ("swap", "inpaint", "fill"):
        assert strategy_of(Region("edges"), (4, 4), InterventionConfig(strategy)) == "edges"
