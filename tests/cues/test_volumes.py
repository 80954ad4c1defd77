"""Volumes: what lies outside of the annotation, along the slices and across them."""

import numpy as np
import torch

from lrptrain.batch import Sample
from lrptrain.cues.painting import dilate, inpainted
from lrptrain.cues.plan import of_volumes
from lrptrain.cues.volumes import Slices, VolumeSurroundings, parts_of_volumes

SIZE = (8, 12, 16)


def volumes(value: float, count: int = 2) -> dict[str, torch.Tensor]:
    """Volumes of one value, with a lesion of 5 in their middle."""
    mask = torch.zeros(count, *SIZE, dtype=torch.uint8)
    mask[:, 3:5, 4:8, 6:10] = 1
    image = torch.where(mask[:, None] == 1, 5.0, value).expand(count, 2, *SIZE).clone()
    return {"image": image, "mask": mask}


def test_the_surroundings_come_from_the_source_and_the_lesion_stays():
    own, given = volumes(0.0), volumes(1.0)
    changed = VolumeSurroundings().exchange(own, given)["image"]
    lesion = (own["mask"] == 1)[:, None].expand_as(changed)
    assert (changed[lesion] == 5).all()
    assert (changed[~lesion] == 1).all()  # nothing of the source's lesion comes along


def test_parts_of_volumes_are_slices_and_places_in_all_of_them():
    batch = volumes(0.0)
    parts = {each.name: each.locate(batch) for each in parts_of_volumes("unreviewed")}
    slices = [inside for name, inside in parts.items() if name.endswith("slices") and inside is not None]
    assert torch.stack(slices).sum(0).eq(1).all()
    first = parts["the first quarter of the slices"]
    top = parts["the top edge"]
    assert first is not None
    assert top is not None
    assert first[:, :2].all()
    assert not first[:, 2:].any()
    assert top[:, :, :3].all()
    assert not top[:, :, 3:].any()


def test_outside_of_the_annotation_a_part_leaves_the_lesion():
    middle = Slices("the middle", "shortcut", 0.25, 0.75, "outside")
    batch = volumes(0.0)
    inside = middle.locate(batch)
    assert (inside.sum() == 2 * (4 * 12 * 16 - 2 * 4 * 4)).item()
    assert not (inside & (batch["mask"] == 1)).any()


def test_a_region_of_a_volume_is_painted_over_and_made_larger():
    batch = volumes(3.0, 1)
    region = dilate(batch["mask"] == 1, 1)
    assert region.sum().item() == 4 * 6 * 6
    assert torch.allclose(inpainted(batch["image"], region), torch.full_like(batch["image"], 3.0))


def test_with_annotations_the_surroundings_are_the_first_root():
    rows = volumes(0.0, 9)
    annotated = [Sample(i, i % 2, {name: x[i] for name, x in rows.items()}) for i in range(9)]
    bare = [Sample(i, i % 2, {"image": rows["image"][i]}) for i in range(9)]
    answers = np.arange(9) % 2
    assert of_volumes(annotated, answers)[0].cue == VolumeSurroundings()
    whole = of_volumes(bare, answers)[-1]
    assert whole.is_whole
    assert [each.cue for each in whole.parts] == parts_of_volumes("unreviewed")
    assert np.array_equal(whole.chosen, np.arange(9))
