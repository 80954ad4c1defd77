"""What is tested in images, by whom, and how strictly."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.cues import plan
from lrptrain.cues.mark import Marks
from lrptrain.cues.places import places
from lrptrain.cues.visual import registered_looks

LOOKS = [look.kind for look in registered_looks() if look.keeps_places]
COUNT = len(LOOKS)


def planned(marked, count=24, at=(20, 20), regions=(), others=False):
    """What is tested of noise; images of the answer 1 have a cross, and of the first ones the top left is annotated.

    Those of the answer 0 may have another cross.
    """
    generator = torch.Generator().manual_seed(0)
    cross = torch.full((3, 4, 4), -2.0)
    cross[0, 1:3], cross[1, :, 1:3] = 3.0, 3.0
    samples, maps = [], []
    for number in range(count):
        image, relevance = torch.randn(3, 32, 32, generator=generator), torch.zeros(8, 8)
        if number % 2 or others:
            top, left = at[0] + number % 4, at[1] + number // 2 % 4
            image[:, top : top + 4, left : left + 4] = cross if number % 2 else cross.flip(0)
            relevance[top // 4, left // 4] = 1
        mask = torch.zeros(max(len(regions), 1), 32, 32, dtype=torch.uint8)
        if number < marked:
            mask[0, :16, :16] = 1
        samples.append(Sample(number, -1, {"image": image, "mask": mask if regions else mask[0]}))
        maps.append(relevance.flatten())
    return plan.of_images(
        samples, Marks(samples, maps, (8, 8), np.arange(count) % 2), np.arange(count) % 2, regions=regions
    )


@pytest.mark.parametrize("marked", [0, 7])
def test_of_images_that_nobody_annotated_all_is_open_and_of_the_whole_image_only_parts_say_anything(marked):
    roots = planned(marked)
    assert [root.cue.kind for root in roots[: COUNT + 2]] == [*LOOKS, "framing", "place"]
    assert {"colour", "spectrum", "light", "grain"} <= {*LOOKS}
    whole, marks = roots[COUNT + 1], roots[COUNT + 2 :]
    assert whole.is_whole
    assert [part.cue for part in whole.parts] == places("unreviewed")
    assert marks
    assert {root.cue.kind for root in marks} == {"mark"}
    assert {part.cue.role for root in roots for part in (root, *root.parts)} == {"unreviewed"}
    assert {root.weight for root in roots} == {1.0}
    assert {len(part.chosen) for root in roots[: COUNT + 2] for part in (root, *root.parts)} == {24}


def test_what_lies_outside_of_annotations_is_a_fault_and_weighs_as_ten_other_cues():
    outside, *others = planned(16, regions=("thing", "tag", "logo"))
    assert outside.cue.kind == "surroundings"
    assert outside.weight == 10 * others[0].weight
    names = [part.cue.name for part in outside.parts]
    assert names[:2] == ["tag", "logo"], "the first region is the evidence"
    assert names[2:]
    assert all(name.startswith("a mark ") and " outside the annotation" in name for name in names[2:])
    assert {part.cue.role for part in (outside, *outside.parts)} == {"shortcut"}
    of_evidence = ["colour", "spectrum"]
    kinds = [*LOOKS, *of_evidence, "framing", "placement", "placement"]
    assert [root.cue.kind for root in others[: COUNT + 5]] == kinds
    assert [root.cue.where for root in others[: COUNT + 2]] == ["image"] * COUNT + ["evidence"] * 2
    assert {root.cue.role for root in others} == {"unreviewed"}
    annotated = [outside, *outside.parts[:2], *others[COUNT : COUNT + 2], *others[COUNT + 3 : COUNT + 5]]
    assert all(node.chosen.tolist() == list(range(16)) for node in annotated)
    assert all(root.chosen.tolist() == list(range(24)) for root in (*others[:COUNT], others[COUNT + 2]))


def test_masks_of_one_answer_alone_hide_nothing():
    """None of another answer could give what lies outside: all images are compared, as if nobody had marked any."""
    samples = [Sample(i, -1, {"image": torch.rand(3, 16, 16), "mask": torch.zeros(16, 16)}) for i in range(24)]
    for sample in samples[::2]:
        sample.tensors["mask"][:8] = 1
    answers = np.arange(24) % 2
    roots = plan.of_images(samples, None, answers)
    assert {root.cue.role for root in roots} == {"unreviewed"}
    assert {len(root.chosen) for root in roots} == {24}
    assert plan.untold(samples, answers) == ["what lies outside of masks, as samples of one answer alone have any"]
    samples[1].tensors["mask"][:8] = 1
    assert plan.of_images(samples, None, answers)[0].cue.kind == "surroundings"
    assert plan.untold(samples, answers) == []


def test_marks_on_what_people_marked_are_open():
    _, *others = planned(24, at=(4, 4))
    marks = others[COUNT + 5 :]
    assert marks
    assert all(root.cue.where == "evidence" and root.cue.role == "unreviewed" for root in marks)


def test_one_mark_alone_is_tested_where_the_model_relies_on_the_marks_of_all_answers():
    halves = planned(0, others=True)[COUNT + 2 :]
    assert all(node.cue.is_several for node in halves)
    assert all(len(node.parts) == 2 and not any(part.cue.is_several for part in node.parts) for node in halves)
    assert all(part.chosen.tolist() == node.chosen.tolist() for node in halves for part in node.parts)
