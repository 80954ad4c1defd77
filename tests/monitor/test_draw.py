"""The sample of a loop is drawn at once, and what it would be misread as is refused."""

import pytest
import torch
from setting import data, loader, module
from torch import nn

import lrptrain


class Bytes(nn.Module):
    def __init__(self, scales):
        super().__init__()
        self.net = module().net
        self.scales = scales

    def forward(self, image):
        if self.scales and image.dtype == torch.uint8:
            return self.net(image / 255)
        return self.net(image.float())


def test_images_of_bytes_in_a_loop_that_makes_floats_of_them():
    """Nobody can know what it makes of them: the model alone would be given other numbers than in training."""
    columns = {**data(), "image": torch.randint(0, 256, (24, 3, 16, 16), dtype=torch.uint8)}
    net = module().net
    with pytest.raises(ValueError, match=r"step=lambda model, batch: model\(batch\['image'\].float\(\) / 255\)"):
        lrptrain.inspect(net, loader(columns))
    with pytest.raises(ValueError, match=r"'image' as bytes .* which it takes otherwise"):
        lrptrain.inspect(Bytes(scales=True), loader(columns))
    assert lrptrain.inspect(Bytes(scales=False), loader(columns))
    assert lrptrain.inspect(net, loader(columns), step=lambda model, batch: model(batch["image"] / 255))
    assert lrptrain.inspect(net, loader(columns), step=lambda model, batch: model(batch["image"].float()))
