"""A frozen layer norm is the norm itself at the recorded input, less its bias, with and without a graph."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lrptrain.relevance.propagation.normalisation import frozen
from lrptrain.relevance.recording import run_on_tape


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm([4, 6], eps=0.1, dtype=torch.float64)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


@pytest.mark.parametrize("with_graph", [True, False])
def test_a_frozen_layer_norm_is_the_norm_without_its_bias(with_graph):
    torch.manual_seed(0)
    model = Normed()
    x = torch.randn(3, 4, 6, dtype=torch.float64)
    tape, _ = run_on_tape(model, x)
    with torch.set_grad_enabled(with_graph):
        found = frozen(tape.nodes[-1])(x)
    expected = F.layer_norm(x, (4, 6), model.norm.weight, None, 0.1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert found.requires_grad == with_graph
