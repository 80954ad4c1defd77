"""The margin around the annotation that swaps keep: what it keeps is said."""

from typing import Any

import pytest
import torch
from torch import nn

from lrptrain import Guidance, Monitor


def batch():
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(16, 12, 12, dtype=torch.uint8)
    mask[:, 4:8, 4:8] = 1  # 16 of 144 pixels; with 2 around it 64, so 48 of the 128 outside
    return {"image": torch.rand(16, 3, 12, 12, generator=generator), "label": torch.arange(16) % 2, "mask": mask}


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, 4)
        self.head = nn.Linear(72, 2)

    def forward(self, image):
        return self.head(self.conv(image).relu().flatten(1))


def test_the_monitor_warns_of_a_margin_that_keeps_much(tmp_path):
    torch.manual_seed(0)
    options: dict[str, Any] = {"method": "input_x_gradient", "max_pictures": 0, "progress_bar": False}
    with Monitor(Pixels(), [batch()], tmp_path, margin=2, **options) as monitor:
        with pytest.warns(UserWarning, match=r"margin=2 keeps 38% of what lies outside the annotations") as caught:
            monitor.evaluate(0)
        monitor.evaluate(1)
    assert len(caught) == 1  # and any other warning is an error, also of the default margin
    with Monitor(Pixels(), [batch()], tmp_path, **options) as monitor:
        monitor.evaluate(0)
    with pytest.raises(ValueError, match="margin must be at least 0, not -1"):
        Monitor(Pixels(), [batch()], tmp_path, margin=-1)


@pytest.mark.parametrize(
    ("options", "said"), [({"margin": 2}, 1), ({}, 0), ({"margin": 0}, 0), ({"loss": "rrr", "margin": 2}, 0)]
)
def test_guidance_says_once_what_its_margin_keeps(options, said):
    model = Pixels()
    heard: list[str] = []
    guidance = Guidance(**{"loss": "consistency", "weight": 1.0, "inform": heard.append, **options})
    for _ in range(2):
        with guidance.step(model, batch()) as step:
            step.guided(nn.functional.cross_entropy(model(batch()["image"]), batch()["label"])).backward()
    assert len([line for line in heard if "38% of what lies outside" in line]) == len(heard) == said
