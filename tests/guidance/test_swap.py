"""What a swap makes of a batch, without a step."""

import pytest
import torch

from lrptrain.cues.sources import random_sources
from lrptrain.cues.whole_input import WholeInput
from lrptrain.guidance.swap import Swap


def batch(rows):
    """Six images, of which some are annotated in their left half."""
    images = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.full((6, 8, 8), 255, dtype=torch.uint8)
    mask[list(rows)] = (torch.arange(8) < 4).to(torch.uint8)
    return images, mask


def test_nobody_gives_to_itself_and_each_usable_sample_gives_once():
    """A sample that is its own source has its own class, and so tells the answer by what is swapped."""
    usable = torch.tensor([True, True, False, True, True])
    for seed in range(20):
        sources = random_sources(usable, torch.Generator().manual_seed(seed))
        assert sources[2] == 2
        assert sorted(sources.tolist()) == [0, 1, 2, 3, 4]
        assert not (sources == torch.arange(5))[usable].any()


@pytest.mark.parametrize("several", [("outside",), ("colour",)])
def test_the_only_sample_that_can_be_swapped_is_none(several):
    """It would take from itself, and count as swapped."""
    images, mask = batch([2])
    found = Swap(several)(images, mask, torch.Generator().manual_seed(0))
    assert not found.which.any()
    assert torch.equal(found.explained, images)
    assert Swap(several)(*batch([2, 3])).which.tolist() == [i in (2, 3) for i in range(6)]


def test_a_sample_without_any_evidence_keeps_its_surroundings_and_gives_them():
    images, mask = batch(range(6))
    mask[0] = 0
    found = Swap()(images, mask, torch.Generator().manual_seed(0))
    assert found.which.tolist() == [False] + [True] * 5
    outside = (mask == 0)[:, None].expand_as(images)
    given = [torch.equal(x[here], images[0][here]) for x, here in zip(found.explained, outside, strict=True)]
    assert torch.equal(found.explained[0], images[0])
    assert sum(given) == 2  # to itself, and to its taker


def test_what_does_not_fit_is_named():
    images, mask = batch(range(6))
    with pytest.raises(ValueError, match=r"mask \(6, 4, 4\) must be"):
        Swap()(images, mask[:, :4, :4])
    with pytest.raises(ValueError, match="takes images"):
        Swap()(images.flatten(2), mask)
    with pytest.raises(ValueError, match=r"names the input 'weight', .* gives the model \['age'\]"):
        Swap([WholeInput.of("weight")])(images, mask, arguments={"image": images, "age": torch.rand(6, 1)})


def test_an_input_that_a_monitor_does_not_explain_may_be_the_one_that_guidance_does():
    images, mask = batch(range(6))
    found = Swap([WholeInput.of("image")])(images, mask, torch.Generator().manual_seed(0), {"image": images})
    assert found.arguments == {}
    assert not (found.explained == images).flatten(1).all(1).any()
    assert torch.equal(found.explained.sort(0).values, images.sort(0).values)
