"""The channels of images that have more than those of a picture."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample, collate
from lrptrain.cues import plan
from lrptrain.cues.measure import Measure
from lrptrain.cues.search import Search
from lrptrain.cues.visual.band import bands


def of_two(channels=13):
    samples = [
        Sample(i, -1, {"image": torch.full((channels, 4, 4), float(i)), "mask": torch.zeros(4, 4, dtype=torch.uint8)})
        for i in range(2)
    ]
    for sample in samples:
        sample.tensors["mask"][1:3, 1:3] = 1
    return collate(samples[:1]), collate(samples[1:])


@pytest.mark.parametrize(("where", "changed"), [("image", 16), ("outside", 12)])
def test_one_channel_is_taken_and_all_else_stays(where, changed):
    own, given = of_two()
    band = bands("unreviewed", 13, where)[7]
    image = band.exchange(own, given)["image"]
    different = image != own["image"]
    assert different[:, 7].sum() == different.sum() == changed
    assert torch.equal(different, band.locate(own))


@pytest.mark.parametrize(("channels", "count"), [(1, 0), (3, 0), (2, 2), (4, 4), (13, 13)])
def test_channels_of_pictures_are_no_things_by_themselves(channels, count):
    assert len(bands("unreviewed", channels)) == count


@pytest.mark.parametrize("is_marked", [False, True])
def test_the_band_that_decides_is_named(is_marked):
    """A model that adds up band 5, by weights set by hand; the sum is its colours, too."""
    generator = torch.Generator().manual_seed(0)
    images = 0.1 * torch.randn(64, 6, 8, 8, generator=generator)
    images[:, 5] += torch.where(torch.arange(64) % 2 == 1, 0.5, -0.5)[:, None, None]
    mask = torch.zeros(8, 8, dtype=torch.uint8)
    mask[3:5, 3:5] = 1
    samples = [Sample(i, -1, {"image": x} | ({"mask": mask} if is_marked else {})) for i, x in enumerate(images)]

    def probabilities(batch):
        p = torch.sigmoid(8 * batch["image"][:, 5].mean((1, 2)))
        return torch.stack([1 - p, p], 1).numpy()

    before = probabilities({"image": images})
    answers = before.argmax(1)
    found = Search(Measure(samples, answers, probabilities, before=before)).run(plan.of_images(samples, None, answers))
    named = [(each.cue.name, each.cue.role) for each in found if each.named]
    outside = ("channel 5 outside the annotation", "shortcut")
    assert named[0] == (outside if is_marked else ("channel 5", "unreviewed"))
    assert not np.isnan(found[0].effect.mean)
