"""A class token that is picked before anything of the input has reached it."""

import pytest
import torch
from torch import nn

import lrptrain


class Frames(nn.Module):
    """Two frames per sample; its class token is that of any frame, as they are all the same."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.position = nn.Parameter(torch.randn(1, 4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, pixel_values):
        samples = len(pixel_values)
        patches = pixel_values.reshape(samples * 2, 3, 4)
        states = torch.cat([self.token.expand(samples * 2, -1, -1), patches], 1) + self.position
        tokens = states[:samples, 0].unsqueeze(1)
        states = torch.cat([tokens, states[:, 1:].reshape(samples, 6, 4)], 1)
        return self.head(torch.tanh(states).mean(1))


@pytest.mark.parametrize("method", ["attnlrp", "lrp", "input_x_gradient"])
def test_the_samples_are_kept_apart(method):
    torch.manual_seed(0)
    model = Frames().double().eval()
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    whole = lrptrain.attribute(model, {"pixel_values": x}, 1, method).scores
    singles = [lrptrain.attribute(model, {"pixel_values": x[i : i + 1]}, 1, method).scores for i in range(3)]
    torch.testing.assert_close(whole, torch.cat(singles), rtol=1e-9, atol=1e-12)
