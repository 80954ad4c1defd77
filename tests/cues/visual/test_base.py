"""A new cue of images is an object in a file, and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import lrptrain.cues.visual
from lrptrain.batch import Sample
from lrptrain.cues import plan
from lrptrain.cues.look import Look
from lrptrain.cues.places import Place
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual import base, register_look, register_parts, registered_looks, registered_parts


@pytest.fixture(autouse=True)
def _put_back(monkeypatch):
    monkeypatch.setattr(base, "_LOOKS", {**base._LOOKS})
    monkeypatch.setattr(base, "_PARTS", {**base._PARTS})


def all_cues(marked):
    """Return all that is tested of images, and of the parts of it."""
    samples = [Sample(i, -1, {"image": torch.rand(3, 16, 16)}) for i in range(24)]
    for sample in samples if marked else ():
        sample.tensors["mask"] = torch.ones(16, 16).tril()
    roots = plan.of_images(samples, None, np.arange(24) % 2)
    return [each.cue for root in roots for each in (root, *root.divided())]


@pytest.mark.parametrize("marked", [False, True])
def test_what_is_registered_is_tested(marked):
    @register_look
    @dataclass(frozen=True)
    class Fog(Look):
        kind: ClassVar[str] = "fog"
        word: ClassVar[str] = "fog"
        order: ClassVar[int] = 15

        def transplant(self, images, own, sources, theirs):
            return images

    @register_parts
    def noses(role, channels, where="image"):
        return [Place(f"a nose of {channels} channels", role, (0.4, 0.4, 0.6, 0.6), None, where)]

    assert [look.kind for look in registered_looks()][:3] == ["colour", "fog", "spectrum"]
    names = [each.name for each in all_cues(marked)]
    assert names.count("the fog of the image") == names.count("a nose of 3 channels") == 1
    assert ("the fog outside the annotation" in names) is marked
    with pytest.raises(ValueError, match="there is already a look called 'fog'"):
        register_look(Fog)
    with pytest.raises(ValueError, match="there are already parts called 'noses'"):
        register_parts(noses)


def test_a_look_that_moves_things_is_none_of_a_part():
    moving = [look.kind for look in registered_looks() if not look.keeps_places]
    assert moving == ["framing"]
    assert not {*moving} & {each.kind for each in Surroundings().children()}


def test_every_file_registers_what_it_has():
    files = {path.stem for path in Path(lrptrain.cues.visual.__path__[0]).glob("*.py")} - {"__init__", "base"}
    made = [*registered_looks(), *(type(each) for each in registered_parts("unreviewed", 4))]
    assert {each.__module__.rpartition(".")[2] for each in made} == files
