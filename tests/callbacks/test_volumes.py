"""Volumes with masks: monitored and guided in place of images."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from own_trainers import answered, in_lightning, in_transformers
from PIL import Image
from torch import Tensor, nn

import lrptrain
from lrptrain.loggers.inputs import input_path

N = 32
SIZE = 8


class Volumetric(nn.Module):
    """A last layer on the means of cubes of 2 voxels a side, of which it reads one."""

    def __init__(self, *place: int):
        super().__init__()
        self.patches = nn.Conv3d(1, 1, 2, 2)
        self.head = nn.Linear(64, 2)
        nn.init.constant_(self.patches.weight, 1 / 8)
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]
        nn.init.zeros_(self.head.weight)
        weight = self.head.weight.data.view(2, 4, 4, 4)
        weight[0, place[0], place[1], place[2]], weight[1, place[0], place[1], place[2]] = -20, 20
        self.head.bias.data = torch.tensor([10.0, -10.0])

    def forward(self, scan, labels=None):
        return answered(self.head(self.patches(scan).flatten(1)), labels)


CORNER, LESION = (0, 0, 3), (2, 2, 2)


def scans() -> dict[str, Tensor]:
    """Scans with a lesion in the middle, and a tag in the corner of the first slices."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(N) % 2
    image = torch.rand(N, 1, SIZE, SIZE, SIZE, generator=generator) * 0.1
    mask = torch.zeros(N, SIZE, SIZE, SIZE, dtype=torch.uint8)
    mask[:, 4:6, 4:6, 4:6] = 1
    image[:, 0, 4:6, 4:6, 4:6] += label.view(-1, 1, 1, 1)
    image[:, 0, :2, :2, 6:] += label.view(-1, 1, 1, 1)
    return {"image": image, "mask": mask, "label": label}


@pytest.mark.parametrize("train", [in_lightning, in_transformers])
def test_a_tag_in_a_corner_is_a_fault(train, tmp_path):
    columns = scans()
    columns["scan"] = columns.pop("image")
    watching = train(tmp_path, Volumetric(*CORNER), columns, {})
    assert watching.scalars["relevance/samples"] == N
    (fault,) = watching.faults
    assert (fault.name, fault.medium) == ("the top right corner", "volume")
    is_lightning = train is in_lightning
    assert ('Fix: RelevanceGuidance("swap", swap=monitor["the top right corner"])' in str(fault)) == is_lightning
    assert watching.scalars["relevance/label/energy_pointing_game"] < 0.2
    assert watching.core.recorder.drawn[0].image.ndim == 3  # one slice
    assert json.loads(input_path(watching.folder, 1).read_text())["grid"] == [16, 4]  # slices one below the other
    shown = np.asarray(Image.open(watching.folder / fault.proof.path).convert("L"))
    # Of each volume the slice that holds the tag: bright in one of the first two pictures, where it was exchanged.
    # Of 8 pixels each is enlarged to 38, the tag has 2, and is outlined.
    assert (shown[14:70, 242:298].mean() > 200) != (shown[14:70, 554:610].mean() > 200)


@pytest.mark.parametrize("place", [CORNER, LESION])
def test_without_masks_a_person_judges_what_is_read(place):
    columns = scans()
    batches = [{name: columns[name][i : i + 8] for name in ("image", "label")} for i in range(0, N, 8)]
    report = lrptrain.inspect(Volumetric(*place), batches, max_samples=N)
    assert not report.faults
    named = [each.name for each in report.to_review]
    assert named == (["the top right corner"] if place == CORNER else ["the middle half of the slices"])


def test_a_mask_of_another_size_is_refused(tmp_path):
    columns: dict[str, Any] = scans()
    columns["mask"] = columns["mask"][:, :4]
    with pytest.raises(ValueError, match="must have the slices, height and width of its volume"):
        lrptrain.Monitor(Volumetric(*CORNER), [columns], tmp_path)


def test_guidance_takes_volumes():
    columns = scans()
    model = Volumetric(*CORNER)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    options: dict[str, Any] = {"method": "attnlrp", "optimizer": optimizer, "on_error": "raise"}
    guidance = lrptrain.Guidance({"swap": 1.0, "energy": 1.0}, **options)
    seen: list[Tensor] = []
    handle = model.patches.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    with guidance.step(model, columns) as step:
        step.guided(nn.functional.cross_entropy(model(columns["image"]), columns["label"])).backward()
    handle.remove()
    inside = columns["mask"][:, None] == 1
    assert torch.equal(seen[0][inside], columns["image"][inside])
    assert not torch.equal(seen[0], columns["image"])
    assert guidance.values["guidance/energy"] > 0.5


class OfFrames(Volumetric):
    """The same of a video, whose frames come before their colours."""

    def forward(self, scan, labels=None):
        return super().forward(scan.movedim(1, 2)[:, :1])


def test_of_a_video_the_frames_and_places_are_named():
    columns = scans()
    columns["image"] = columns["image"].movedim(1, 2).expand(-1, -1, 3, -1, -1).clone()
    masked = lrptrain.inspect(OfFrames(*CORNER), [columns], max_samples=N)
    assert [each.name for each in masked.faults] == ["the top right corner"]
    del columns["mask"]
    report = lrptrain.inspect(OfFrames(*LESION), [columns], max_samples=N)
    assert [each.name for each in report.to_review] == ["the middle half of the frames"]
