"""Named regions of the annotation."""

import numpy as np
import torch

from lrptrain.batch import Sample
from lrptrain.cues import plan
from lrptrain.cues.kinds import restored
from lrptrain.cues.mark import Marks
from lrptrain.cues.region import Region
from lrptrain.cues.texts import Language


def batch(value, seal):
    """Images of one value, the evidence above left, and a seal that overlaps it by a column."""
    mask = torch.zeros(1, 2, 4, 4, dtype=torch.uint8)
    mask[:, 0, :2, :2] = 1
    mask[:, 1, 0, seal] = 1
    return {"image": torch.full((1, 1, 4, 4), float(value)), "mask": mask}


SEAL = Region("seal", "shortcut", 1)


def test_it_is_what_lies_outside_of_the_evidence():
    assert SEAL.locate(batch(0, slice(1, 3)))[0].nonzero().tolist() == [[0, 2]]
    plain = batch(0, slice(1, 3))
    plain["mask"] = plain["mask"][:, 0]
    assert not SEAL.locate(plain).any()
    assert SEAL.needs_annotation


def test_a_sample_loses_its_own_and_is_given_its_sources():
    changed = SEAL.exchange(batch(0, slice(2, 3)), batch(1, slice(3, 4)))["image"][0, 0]
    assert changed.nonzero().tolist() == [[0, 2], [0, 3]]


def test_a_source_gives_none_of_its_evidence():
    own, source = ({"image": torch.full((1, 1, 16, 16), x), "mask": torch.zeros(1, 2, 16, 16)} for x in (0.0, 1.0))
    own["mask"][:, 0, 12:, 12:] = own["mask"][:, 1, :4, :4] = 1
    source["mask"][:, 0, 2:6, 2:6] = 1
    source["image"][:, :, 2:6, 2:6] = 9
    changed = SEAL.exchange(own, source)["image"]
    assert changed.max() == 1
    assert changed.sum() == 16


def test_each_region_but_the_evidence_is_tested_below_the_surroundings():
    samples = [Sample(i, i % 2, {name: x[0] for name, x in batch(i % 2, slice(2, 3)).items()}) for i in range(16)]
    maps = [torch.ones(4)] * 16
    roots = plan.of_images(
        samples, Marks(samples, maps, (2, 2), np.arange(16) % 2), np.arange(16) % 2, regions=("object", "seal")
    )
    (faults,) = [root for root in roots if root.cue.kind == "surroundings"]
    assert [part.cue for part in faults.parts if part.cue.kind == "region"] == [SEAL]


def test_it_is_plain_data():
    assert restored(SEAL.to_dict(), lambda: Language(lambda ids: [])) == SEAL
