"""What lies next to the evidence is that of the source, around one's own evidence."""

import pytest
import torch

from lrptrain.cues.beside import Beside

SIZE = 32  # the border is 4 wide
BESIDE = Beside()


def sample(top, left, side=6, shadow=1.0):
    """A thing with a shadow of its own shade to the right of it, on black."""
    image = torch.zeros(1, 3, SIZE, SIZE)
    mask = torch.zeros(1, SIZE, SIZE, dtype=torch.uint8)
    mask[:, top : top + side, left : left + side] = 1
    image[:, :, top : top + side, left : left + side] = 9
    image[:, :, top : top + side, left + side + 2 : left + side + 4] = shadow
    return {"image": image, "mask": mask}


def test_it_is_around_the_evidence_and_as_wide_as_the_border():
    inside = BESIDE.locate(sample(10, 12))[0]
    assert inside.sum() == 14**2 - 6**2
    assert inside[6, 8]
    assert not inside[5].any()
    assert not inside[10:16, 12:18].any()


@pytest.mark.parametrize("place", [(10, 12), (4, 20), (20, 3)])
@pytest.mark.parametrize("side", [6, 9])
def test_what_lies_next_to_a_thing_comes_next_to_another_thing(place, side):
    own, source = sample(13, 13, shadow=1.0), sample(place[0], place[1], side, shadow=5.0)
    changed = BESIDE.exchange(own, source)["image"]
    inside = BESIDE.locate(own)[:, None].expand_as(changed)
    assert torch.equal(changed[~inside], own["image"][~inside]), "all else stays"
    shadow = changed[0, 0, 14:18, 20:23]
    assert shadow.max() > 3, "stretched, it is not as bright between two pixels"
    assert changed[inside].max() < 5.5, "the source's thing is not given"


def test_without_evidence_nothing_changes():
    own, source = sample(10, 12), sample(4, 4)
    bare = {**source, "mask": torch.zeros_like(source["mask"])}
    assert torch.equal(BESIDE.exchange(own, bare)["image"], own["image"])
    assert torch.equal(BESIDE.exchange(bare, own)["image"], source["image"])


def test_coordinates_keep_their_precision_in_16_bits():
    mask = torch.zeros(1, 32, 1500, dtype=torch.uint8)
    mask[:, 8:24, 40:60] = 1
    own = {"image": torch.zeros(1, 1, 32, 1500).half(), "mask": mask}
    source = {"image": torch.rand(1, 1, 32, 1500, generator=torch.Generator().manual_seed(0)).half()}
    changed = BESIDE.exchange(own, {**source, "mask": mask.roll(1203, 2)})["image"]
    assert changed.dtype is torch.float16
    torch.testing.assert_close(changed[..., 8:24, 36:38], source["image"][..., 8:24, 1239:1241], rtol=0, atol=0.01)
