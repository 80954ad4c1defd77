"""Series: their channels, quarters of their time, and what lies outside of what is annotated."""

from typing import Any

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.cues.kinds import restored
from lrptrain.cues.plan import of_series
from lrptrain.cues.series import SeriesPart, SeriesSurroundings, parts_of_series
from lrptrain.cues.texts import Language

CHANNELS, TIME = 5, 16
PART = SeriesPart("channel 1 in the second quarter", "unreviewed", 1, 2, 1)


def series(value, time_first=False):
    """Series of one value, of which the third quarter is annotated, and holds a 5."""
    mask = torch.zeros(2, TIME, dtype=torch.uint8)
    mask[:, 8:12] = 1
    values = torch.where(mask[:, None] == 1, 5.0, value).expand(2, CHANNELS, TIME).clone()
    if time_first:
        return {"image": values.mT, "rationale": mask}
    return {"image": values, "mask": mask}


@pytest.mark.parametrize("time_first", [False, True])
def test_a_part_takes_its_channels_and_its_time_alone(time_first):
    own, given = (series(value, time_first) for value in (0.0, 1.0))
    changed = PART.exchange(own, given)["image"]
    changed, before = (x.mT if time_first else x for x in (changed, own["image"]))
    assert (changed[:, 1, 4:8] == 1).all()
    changed[:, 1, 4:8] = before[:, 1, 4:8]
    assert torch.equal(changed, before)
    assert PART.locate(own).sum() == 2 * 4


@pytest.mark.parametrize("time_first", [False, True])
def test_the_surroundings_come_from_the_source_and_what_is_annotated_stays(time_first):
    own, given = (series(value, time_first) for value in (0.0, 1.0))
    given["image"][:] = given["image"].flip(1 if time_first else 2)  # what is annotated in it lies elsewhere
    name = "rationale" if time_first else "mask"
    given[name] = given[name].flip(1)
    changed = SeriesSurroundings().exchange(own, given)["image"]
    changed = changed.mT if time_first else changed
    assert (changed[..., 8:12] == 5).all()
    assert (changed[..., :4] == 1).all()
    assert changed[..., 4:8].max() < 5, "a source gives none of its evidence"


def test_parts_divide_down_to_one_channel_in_one_quarter():
    found: set[Any] = set()
    waiting: list[Any] = parts_of_series("unreviewed", CHANNELS)[1:]
    while waiting:
        part = waiting.pop()
        found.add(part)
        below = [*part.children()]
        if below:
            places = torch.stack([each.locate(series(0.0)) for each in below])
            assert torch.equal(places.any(0), part.locate(series(0.0)))
            assert places.sum(0).max() == 1
        waiting += below
    smallest = {
        (each.first, each.quarter) for each in found if each.stop - each.first == 1 and each.quarter is not None
    }
    assert smallest == {(channel, quarter) for channel in range(CHANNELS) for quarter in range(4)}
    assert "channel 1 in the second quarter of the series" in {each.name for each in found}
    assert "the channels 2 to 4" in {each.name for each in found}
    assert len(parts_of_series("unreviewed", 1)) == 5, "one channel is no part of itself"


def test_with_annotations_the_surroundings_are_the_first_root():
    samples = [Sample(i, i % 2, {name: x[0] for name, x in series(float(i)).items()}) for i in range(16)]
    answers = np.arange(16) % 2
    surroundings, level = of_series(samples, answers)
    assert surroundings.cue == SeriesSurroundings(channels=CHANNELS)
    assert {each.role for each in surroundings.cue.children()} == {"shortcut"}
    assert (getattr(level.cue, "where", ""), level.cue.role) == ("evidence", "unreviewed")
    for sample in samples:
        sample.tensors["mask"].zero_()
    (whole,) = of_series(samples, answers)
    assert whole.is_whole
    assert {part.cue.role for part in whole.parts} == {"unreviewed"}


def test_it_is_plain_data():
    for cue in (PART, SeriesSurroundings(channels=3)):
        assert restored(cue.to_dict(), lambda: Language(lambda ids: [])) == cue
