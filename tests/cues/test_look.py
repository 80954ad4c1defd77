"""What holds of every look that is registered."""

import pytest
import torch

from lrptrain.cues.visual import registered_looks
from tests.cues.looked_at import images, masks, transplanted

LOOKS = [look for look in registered_looks() if look.keeps_places]


@pytest.mark.parametrize("look", LOOKS)
def test_only_of_a_part_people_have_to_say_where_it_is(look):
    parts = [look.of(where, "unreviewed") for where in ("image", "outside", "evidence")]
    assert [part.needs_annotation for part in parts] == [False, True, True]


@pytest.mark.parametrize("look", LOOKS)
def test_what_lies_beside_a_part_has_no_say_in_its_look(look):
    inside = masks() == 1
    own, sources = images(0), images(1)
    others = [torch.where(inside[:, None], each, 5 + images(2)) for each in (own, sources)]
    changed, again = (transplanted(look, one, other, inside, inside) for one, other in ((own, sources), others))
    part = inside[:, None].expand_as(own)
    torch.testing.assert_close(again[part], changed[part])


@pytest.mark.parametrize("look", LOOKS)
def test_a_source_without_the_part_gives_nothing(look):
    own, sources = {"image": images(0), "mask": masks()}, {"image": images(1), "mask": masks()}
    sources["mask"][1] = 0
    changed = look.of("evidence", "unreviewed").exchange(own, sources)["image"]
    assert [torch.equal(*pair) for pair in zip(changed, own["image"], strict=True)] == [False, True, False, False]


@pytest.mark.parametrize("look", LOOKS)
def test_its_own_look_changes_nothing(look):
    own = images(0)
    torch.testing.assert_close(transplanted(look, own, own), own)


@pytest.mark.parametrize("look", LOOKS)
def test_the_scale_of_the_pixels_does_not_matter(look):
    own, sources = images(0), images(1)
    torch.testing.assert_close(
        3 * transplanted(look, own, sources) + 2, transplanted(look, 3 * own + 2, 3 * sources + 2)
    )


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("where", ["outside", "evidence"])
def test_a_part_takes_the_look_of_a_part_and_the_rest_stays(look, where):
    batch = {"image": images(0), "mask": masks()}
    sources = {"image": images(1), "mask": masks().flip(2)}
    cue = look.of(where, "unreviewed")
    changed = cue.exchange(batch, sources)["image"]
    inside = cue.locate(batch)
    kept = ~inside[:, None].expand_as(changed)
    assert torch.equal(changed[kept], batch["image"][kept])
    assert not torch.equal(changed, batch["image"])
    # What the source has elsewhere is not given.
    elsewhere = ~cue.locate(sources)[:, None]
    other = {**sources, "image": torch.where(elsewhere, sources["image"].flip(3), sources["image"])}
    limits = [sources["image"].amin((2, 3)), sources["image"].amax((2, 3))]
    same_limits = [other["image"].amin((2, 3)), other["image"].amax((2, 3))]
    if all(torch.equal(*pair) for pair in zip(limits, same_limits, strict=True)):
        torch.testing.assert_close(cue.exchange(batch, other)["image"], changed)


@pytest.mark.parametrize("look", LOOKS)
def test_values_stay_between_those_of_both_images(look):
    batch, sources = {"image": images(0)}, {"image": images(1)}
    changed = look.of("image", "unreviewed").exchange(batch, sources)["image"]
    both = torch.stack([batch["image"], sources["image"]])
    assert (changed <= both.amax((0, 3, 4))[..., None, None]).all()
    assert (changed >= both.amin((0, 3, 4))[..., None, None]).all()


@pytest.mark.parametrize("look", LOOKS)
def test_a_batch_is_changed_as_its_samples_are_and_dtypes_stay(look):
    own, sources = images(0).float(), images(1).float()
    cue = look.of("image", "unreviewed")
    together = cue.exchange({"image": own}, {"image": sources})["image"]
    for row in range(len(own)):
        alone = cue.exchange({"image": own[row : row + 1]}, {"image": sources[row : row + 1]})["image"]
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)
    half = cue.exchange({"image": own.bfloat16()}, {"image": sources.bfloat16()})["image"]
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), together, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("look", LOOKS)
def test_guidance_can_learn_through_it(look):
    own, sources = images(0, (8, 8))[:1], images(1, (8, 8))[:1]

    def changed(x):
        return transplanted(look, x, sources)

    assert torch.autograd.gradcheck(changed, own.requires_grad_(), atol=1e-6)
