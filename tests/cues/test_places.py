"""Places of images, what lies outside of the evidence, and what the evidence's place and size are."""

import pytest
import torch

from lrptrain.cues.cue import Cue
from lrptrain.cues.placement import Placement
from lrptrain.cues.places import WHOLE, Place, background, place_of, places
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual import registered_looks

SIZE = 16


def batch(seed=0, count=3, mask=None):
    generator = torch.Generator().manual_seed(seed)
    columns = {"image": torch.randn(count, 3, SIZE, SIZE, generator=generator)}
    return columns if mask is None else {**columns, "mask": mask.expand(count, -1, -1).clone()}


def thing(top=4, left=4, side=6):
    mask = torch.zeros(SIZE, SIZE, dtype=torch.uint8)
    mask[top : top + side, left : left + side] = 1
    return mask


def by_name(where="image"):
    found: dict[str, Cue] = {}
    for place in places("unreviewed", where):
        found |= {place.name: place} | {each.name: each for each in place.children()}
    return found


def test_border_edges_and_middle_are_where_people_say():
    located = {name: place.locate(batch())[0] for name, place in by_name().items()}
    assert "the middle" not in located, "the thing itself lies there"
    own = batch(mask=torch.zeros(SIZE, SIZE, dtype=torch.uint8))
    own["mask"][:, 0, 0] = 1
    located["the middle"] = by_name("outside")["the middle"].locate(own)[0]
    assert located["the border"].sum() == SIZE**2 - (SIZE - 4) ** 2
    assert not located["the border"][2:-2, 2:-2].any()
    assert located["the middle"][4:12, 4:12].all()
    assert located["the middle"].sum() == 64
    edges = [located[f"the {side} edge"] for side in ("top", "bottom", "left", "right")]
    assert all(each.sum() == 64 for each in edges)
    assert torch.equal(torch.stack(edges).any(0), ~located["the middle"])
    assert located["the top edge"][:4].all()
    assert located["the right edge"][:, -4:].all()
    corners = {name: each for name, each in located.items() if "corner" in name}
    assert len(corners) == 4
    assert corners["the bottom left corner"][-4:, :4].all()
    assert all(each.sum() == 16 for each in corners.values())


@pytest.mark.parametrize("side", ["top", "bottom", "left", "right"])
def test_an_edge_is_its_corners_and_what_lies_between_them(side):
    edge = by_name()[f"the {side} edge"]
    parts = [each.locate(batch())[0].int() for each in edge.children()]
    assert len(parts) == 3
    assert torch.equal(sum(parts), edge.locate(batch())[0].int())
    assert not any(each.children() for each in edge.children())


def test_every_place_but_the_whole_is_less_than_half_of_an_image():
    for place in by_name().values():
        assert place.locate(batch()).float().mean() < 0.5, place.name
    assert Place("the image", "unreviewed", WHOLE).locate(batch()).all()


def test_the_background_is_all_that_an_edge_covers_and_what_lies_in_the_middle_is_not_given():
    inside = background().locate(batch())
    edges = [place.locate(batch()) for place in places("unreviewed")[1:]]
    assert torch.equal(inside, torch.stack(edges).any(0))
    assert not inside[:, 4:12, 4:12].any()
    given = background().exchange(batch(0), batch(1))["image"]
    assert torch.equal(given[..., 4:12, 4:12], batch(0)["image"][..., 4:12, 4:12])
    assert background("shortcut").role == "shortcut"
    assert background() not in places("unreviewed"), "it is tested only when asked for"


@pytest.mark.parametrize(
    "place",
    [*places("unreviewed"), background(), *places("shortcut", "outside")],
    ids=lambda place: f"{place.name}, {place.role}",
)
def test_a_place_is_the_sources_and_the_rest_stays(place):
    own, sources = batch(0, mask=thing()), batch(1, mask=thing(0, 0))
    changed = place.exchange(own, sources)["image"]
    inside = place.locate(own)[:, None].expand_as(changed)
    assert torch.equal(changed[~inside], own["image"][~inside])
    given = sources["image"]
    if place.role == "shortcut":
        assert not (place.locate(own) & (own["mask"] == 1)).any(), "evidence stays"
        given = torch.where(sources["mask"][:, None] == 1, torch.nan, given)  # and is not given
    beside = inside & ~given.isnan()
    far = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    far[9:, :], far[:, 9:] = True, True  # painted over is a little around the evidence, too
    assert torch.equal(changed[beside & far], given[beside & far])
    if place.role == "shortcut" and inside[..., :6, :6].any():
        taken = inside & (sources["mask"][:, None] == 1)
        assert not torch.isin(changed[taken], sources["image"][taken]).any()


def test_surroundings_are_all_but_evidence_and_what_is_ignored():
    mask = thing()
    mask[0, :] = 255
    own, sources = batch(0, mask=mask), batch(1, mask=thing(8, 8))
    own["mask"][2] = 0  # one without evidence has none, and stays
    changed = Surroundings().exchange(own, sources)["image"]
    kept = own["mask"] != 0
    assert torch.equal(changed.mT.movedim(1, -1)[kept.mT], own["image"].mT.movedim(1, -1)[kept.mT])
    assert torch.equal(changed[2], own["image"][2])
    assert torch.equal(changed[0, :, 1:4, :4], sources["image"][0, :, 1:4, :4])
    taken = (own["mask"][0] == 0) & (sources["mask"][0] == 1)
    assert not torch.isin(changed[0][:, taken], sources["image"][0]).any(), "a source gives none of its evidence"
    parts = Surroundings().children()
    kinds = [look.kind for look in registered_looks() if look.keeps_places]
    assert [each.kind for each in parts] == ["beside", *["place"] * 6, *kinds]
    assert {each.role for each in parts} == {"shortcut"}


@pytest.mark.parametrize(
    "cue",
    [Surroundings(), *places("unreviewed"), *places("shortcut", "outside")],
    ids=lambda cue: f"{cue.name}, {cue.role}",
)
def test_what_a_sample_takes_of_itself_is_no_change_beside_its_own_evidence(cue):
    own = batch(0, mask=thing())
    changed = cue.exchange(own, own)["image"]
    far = torch.ones(SIZE, SIZE, dtype=torch.bool)
    far[2:12, 2:12] = False  # around the evidence, sources are painted over
    assert torch.equal(changed[..., far], own["image"][..., far])
    bare = batch(0)
    if cue.role == "unreviewed":
        assert torch.equal(cue.exchange(bare, bare)["image"], bare["image"])


def test_masks_of_several_regions_have_the_evidence_first():
    regions = torch.stack([thing(), 1 - thing()])[None].expand(3, -1, -1, -1)
    own = {**batch(0), "mask": regions}
    assert torch.equal(Surroundings().locate(own)[0], thing() == 0)


def test_a_thing_is_put_where_and_made_as_large_as_the_sources():
    image = torch.zeros(2, 3, 32, 32)
    masks = torch.zeros(2, 32, 32, dtype=torch.uint8)
    masks[0, 4:8, 4:8], masks[1, 20:28, 18:26] = 1, 1
    image[masks[:, None].expand_as(image) == 1] = 1.0
    own, source = ({"image": image[i : i + 1], "mask": masks[i : i + 1]} for i in (0, 1))
    moved = Placement.of("location").exchange(own, source)["image"][0, 0]
    assert moved[22:26, 20:24].mean() > 0.9
    assert moved[4:8, 4:8].max() < 0.1
    larger = Placement.of("size").exchange(own, source)["image"][0, 0]
    assert 30 < larger.sum() < 90, "of 16 pixels, with those of the source 64; both have a margin"
    assert torch.equal(Placement.of("size").exchange({"image": image}, {"image": image})["image"], image)


def test_a_cue_is_plain_data():
    assert Surroundings().to_dict() == {
        "kind": "surroundings",
        "name": "everything outside the annotation",
        "role": "shortcut",
        "where": "outside",
    }
    place = places("unreviewed")[0]
    assert place.to_dict()["box"] == WHOLE
    assert len({*places("unreviewed"), *places("unreviewed")}) == 5, "equal cues are one"


@pytest.mark.parametrize(
    ("rows", "columns", "name"),
    [
        (slice(13, 16), slice(0, 3), "the bottom left corner"),
        (slice(6, 10), slice(12, 16), "the middle of the right edge"),
        (slice(0, 16), slice(12, 16), "the right edge"),
        (slice(0, 16), slice(0, 16), ""),
        (slice(6, 10), slice(6, 10), ""),
    ],
)
def test_where_most_of_some_pixels_lie(rows, columns, name):
    located = torch.zeros(2, SIZE, SIZE, dtype=torch.bool)
    located[:, rows, columns] = True
    assert place_of(located) == name
    located[:, 8, 8] = True  # a little elsewhere
    assert place_of(located) == name


def test_of_a_rim_around_the_sources_evidence_the_inner_pixel_alone_is_painted_over():
    images = torch.zeros(2, 1, 48, 48)
    mask = torch.zeros(2, 48, 48, dtype=torch.uint8)
    mask[0, 2:6, 2:6] = 1  # the sample's own lies elsewhere
    mask[1, 20:28, 20:28] = 1
    images[1, :, 18:30, 18:30] = 5.0
    images[1, :, 20:28, 20:28] = 9.0
    own, source = ({"image": images[i : i + 1], "mask": mask[i : i + 1]} for i in range(2))
    changed = Surroundings().exchange(own, source)["image"][0, 0]
    assert (changed[18, 18:30] == 5).all(), "the rim is given"
    assert changed.max() == 5, "and nothing of the evidence"
    source["image"][:, :, 19:29, 19:29] = 9.0  # masks seldom hold the very edge
    assert Surroundings().exchange(own, source)["image"].max() == 5
