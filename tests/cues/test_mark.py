"""A mark is found wherever it lies, and goes from one image to another."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.batch.call import CALL, Call
from lrptrain.cues.mark import Mark, Marks, _begin_near, sampled, stride_of

SIZE, GRID = 32, (8, 8)


def planted(count=40, seed=0, share=1.0):
    """Noise; images of the answer 1 hold a cross of 4 pixels at a random place, to which their maps point."""
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.normal(size=(count, 3, SIZE, SIZE)).astype(np.float32))
    answers = np.arange(count) % 2
    maps = torch.from_numpy(0.1 * rng.random((count, 64)))
    places = rng.integers(0, SIZE - 4, (count, 2))
    for row, (top, left) in enumerate(places):
        if answers[row] and rng.random() < share:
            images[row, :, top : top + 4, left : left + 4] = cross()
            maps[row, (top + 1) // 4 * 8 + (left + 1) // 4] = 1
    return images, answers, maps, places


def cross():
    picture = torch.full((3, 4, 4), -2.0)
    picture[0, 1:3], picture[1, :, 1:3] = 3.0, 3.0
    return picture


def proposed(batch, maps, grid, answers, where, count):
    columns = {name: x for name, x in batch.items() if isinstance(x, torch.Tensor)}
    samples = [Sample(row, -1, {name: x[row] for name, x in columns.items()}) for row in range(len(answers))]
    return Marks(samples, maps, grid, answers).proposed(np.arange(len(samples)), answers, where, count)


def found(where="image", mask=None, **options):
    images, answers, maps, _ = planted(**options)
    batch = {"image": images, CALL: Call("x")} | ({} if mask is None else {"mask": mask})
    return [mark for _, mark in proposed(batch, maps, GRID, answers, where, 4)]


def test_it_is_proposed_and_located_in_images_that_nobody_has_seen():
    mark = found()[0]
    images, answers, _, places = planted(seed=1)
    inside = mark.locate({"image": images})
    assert inside[answers == 0].sum() == 0
    assert all(
        inside[row, top : top + 4, left : left + 4].all() for row, (top, left) in enumerate(places) if answers[row]
    )
    assert inside[answers == 1].flatten(1).sum(1).max() <= (mark.pictures[0][0] + 2 * (mark.pictures[0][0] // 2)) ** 2


def test_a_sample_loses_its_own_and_is_given_the_sources():
    mark = found()[0]
    images, answers, *_ = planted(seed=2)
    own, source = (images[answers == label][:1] for label in (1, 0))
    gone = mark.exchange({"image": own}, {"image": source})["image"]
    assert not mark.locate({"image": gone}).any()
    assert torch.equal(gone[0, :, 0, 0], own[0, :, 0, 0]) or mark.locate({"image": own})[0, 0, 0]
    given = mark.exchange({"image": source}, {"image": own})["image"]
    assert torch.equal(mark.locate({"image": given}), mark.locate({"image": own}))
    both = mark.exchange({"image": own}, {"image": images[answers == 1][1:2]})["image"]
    assert torch.equal(mark.locate({"image": both}), mark.locate({"image": images[answers == 1][1:2]}))
    assert torch.equal(mark.exchange({"image": own}, {"image": own})["image"], own)


def test_it_is_found_through_noise_that_nobody_sees_and_not_in_another_picture():
    mark = found()[0]
    images, answers, *_ = planted(seed=1)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    shown = [
        mark.locate({"image": (images + level * noise)[answers == 1]}).flatten(1).any(1).float().mean()
        for level in (0.1, 0.6)
    ]
    assert shown == [1, 0]


def test_it_may_be_as_large_as_half_a_patch():
    images, answers, maps, _ = planted()
    coarse = torch.nn.functional.max_pool2d(maps.view(-1, 1, 8, 8), 2).flatten(1)
    (mark,) = (mark for _, mark in proposed({"image": images}, coarse, (4, 4), answers, "image", 4))
    assert mark.pictures[0][0] == 4
    assert mark.locate({"image": images}).flatten(1).any(1).tolist() == (answers == 1).tolist()


def test_what_few_images_show_is_no_mark_of_theirs():
    images, answers, maps, _ = planted()
    answers = np.where(np.arange(40) < 4, answers, 0)
    images, maps = images[:4], maps[:4]
    many = [*images, *torch.randn(36, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))]
    relevance = torch.cat([maps, torch.rand(36, 64, generator=torch.Generator().manual_seed(1))])
    assert not list(proposed({"image": torch.stack(many)}, relevance, GRID, answers, "image", 4))


def test_of_several_views_of_a_mark_the_first_is_proposed_and_no_more_than_asked_for():
    """Two crosses of different colours: each is one mark, however many of its parts and sides recur."""
    assert len(found()) == 1
    images, answers, maps, _ = planted(share=0.6)
    other, _, more, places = planted(seed=1)
    for row, (top, left) in enumerate(places):
        if answers[row]:
            other[row, :, top : top + 4, left : left + 4] = cross().flip(0)
    batch = {"image": torch.cat([images, other])}
    relevance, both = torch.cat([maps, more]), np.concatenate([answers, 2 * answers])
    for count in (1, 2, 3):
        *marks, (_, together) = proposed(batch, relevance, GRID, both, "image", count)
        assert len(marks) == min(count, 2)
        assert [round(score) for score, _ in marks] == [9, 7][:count]
        assert together.is_several


def test_marks_of_several_answers_are_one_cue_together():
    images, answers, maps, _ = planted()
    other, _, more, places = planted(seed=1)
    for row, (top, left) in enumerate(places):
        if answers[row]:
            other[row, :, top : top + 4, left : left + 4] = cross().flip(0)
    one, two = images[answers == 1], other[answers == 1]
    batch = {"image": torch.cat([one, two])}
    relevance, both = torch.cat([maps[answers == 1], more[answers == 1]]), np.repeat([0, 1], 20)
    *alone, (_, together) = proposed(batch, relevance, GRID, both, "image", 4)
    assert (together.name[:9], len(together.pictures), len(alone)) == ("marks of ", 2, 2)
    assert together.locate(batch).flatten(1).any(1).all()
    own, source = {"image": one[:1]}, {"image": two[:1]}
    # An image loses its own mark and is given the other one: with one picture alone it would have both, or none.
    changed = {"image": together.exchange(own, source)["image"]}
    present = [bool(mark.locate(changed).any()) for _, mark in sorted(alone, key=lambda each: each[1].pictures)]
    expected = [bool(mark.locate(source).any()) for _, mark in sorted(alone, key=lambda each: each[1].pictures)]
    assert present == expected
    assert sorted(expected) == [False, True]


def test_it_is_found_at_the_second_most_relevant_patch_of_images_too():
    images, answers, maps, _ = planted()
    maps[:, 0] = 2
    assert list(proposed({"image": images}, maps, GRID, answers, "image", 1))


def test_noise_holds_no_picture_twice():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(40, 3, SIZE, SIZE, generator=generator)
    marks = proposed({"image": images}, torch.rand(40, 64, generator=generator), GRID, np.arange(40) % 2, "image", 4)
    assert not list(marks)


def test_as_a_fault_it_lies_outside_of_the_evidence():
    mask = torch.zeros(40, SIZE, SIZE, dtype=torch.uint8)
    mask[:, :16] = 1
    marks = found("outside", mask)
    assert marks
    assert all(mark.role == "shortcut" and mark.where == "outside" for mark in marks)
    images, *_ = planted(seed=1)
    batch = {"image": images, "mask": mask}
    assert not (marks[0].locate(batch) & (mask == 1)).any()
    changed = marks[0].exchange(batch, {"image": images.roll(1, 0), "mask": mask})["image"]
    assert torch.equal(changed[:, :, :16], images[:, :, :16])
    own, source = ({"image": torch.zeros(1, 3, SIZE, SIZE), "mask": mask[i : i + 1].clone()} for i in (0, 1))
    own["image"][0, :, 20:24, 8:12] = cross()
    source["image"][:, :, 16:] = 50.0
    source["mask"][:] = source["mask"].flip(1)
    assert marks[0].locate(own).any()
    assert marks[0].exchange(own, source)["image"].max() < 50, "a source gives none of its evidence"
    on_it = found("evidence", mask)
    assert on_it
    assert all(mark.role == "unreviewed" for mark in on_it)
    assert not (on_it[0].locate(batch) & (mask == 0)).any()


def test_points_are_means_over_the_picture_without_its_corners():
    image = torch.arange(100.0).view(1, 10, 10)
    points = sampled(image, 5)
    assert points.shape == (1, 21, 6, 6)
    assert points[0, 0, 0, 0] == 1  # beside the corner
    assert points[0, -1, 2, 3] == image[0, 6, 6]
    wide = sampled(image, 10)
    assert wide.shape[-2:] == (1, 1)
    assert wide[0, 0, 0, 0] == image[0, :2, 2:4].mean()
    strided = sampled(torch.arange(1600.0).view(1, 40, 40), 16)
    assert strided.shape[-2:] == (13, 13)
    assert strided[0, 0, 1, 0] == strided[0, 0, 0, 0] + 2 * 40


def test_it_is_plain_data():
    mark = found()[0]
    values = mark.to_dict()
    assert values["kind"] == "mark"
    again = Mark(**{name: value for name, value in values.items() if name != "kind"})
    assert again == mark
    assert hash(again) == hash(mark)


@pytest.mark.parametrize(
    ("size", "grid", "side"), [((224, 224), (14, 14), 16), ((30, 41), (4, 5), 7), ((16, 16), (4, 4), 3)]
)
def test_a_picture_begins_near_patches_where_it_covers_any_of_their_pixels(size, grid, side):
    patches = (torch.rand(grid, generator=torch.Generator().manual_seed(0)) > 0.8).long()
    pixels = F.interpolate(patches[None, None].double(), size, mode="nearest")
    expected = F.max_pool2d(pixels, side, stride_of(side))[0, 0] > 0
    assert torch.equal(_begin_near(patches, size, side), expected)


def test_a_mark_that_all_images_show_is_proposed_by_its_number_and_takes_that_along():
    images, answers, maps, places = planted()
    for row, (top, left) in enumerate(places):
        images[row, :, top : top + 4, left : left + 4] = cross()
        maps[row, (top + 1) // 4 * 8 + (left + 1) // 4] = 1
        if answers[row]:
            images[row, :, (top + 12) % 28 : (top + 12) % 28 + 4, (left + 9) % 28 : (left + 9) % 28 + 4] = cross()
    (score, mark), *_ = proposed({"image": images}, maps, GRID, answers, "image", 4)
    assert score > 5
    one, two = ({"image": images[answers == label][:1]} for label in (0, 1))
    given = {"image": mark.exchange(one, two)["image"]}
    assert torch.equal(mark.locate(given), mark.locate(two))
