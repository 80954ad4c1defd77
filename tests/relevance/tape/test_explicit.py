"""Fused operations written out: the same numbers as torch's own, and relevance by hand."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

WIDTH, HIDDEN = 8, 6
# A few steps are enough to compare two models.
pytestmark = pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")


class Recurrent(nn.Module):
    """A recurrent layer over the patches of an image, and a head on the mean of what it says."""

    def __init__(self, first: bool = False, heads: int = HIDDEN, kind: str = "LSTM", **options: bool | int | str):
        super().__init__()
        self.first = first
        self.embed = nn.Conv2d(3, WIDTH, 8, 8, bias=False)
        self.layer: Any = getattr(nn, kind)(WIDTH, HIDDEN, **options)
        self.head = nn.Linear(heads, 4, bias=False)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).mT
        if not self.layer.batch_first:
            tokens = tokens.transpose(0, 1)
        states, last = self.layer(tokens)
        if self.first:  # after the first patch
            return self.head(states[0])
        said = self.head(states.mean(1 if self.layer.batch_first else 0))
        return sum((end.sum(0).sum(-1, keepdim=True) for end in (last if isinstance(last, tuple) else (last,))), said)


KINDS = {
    "as it is": Recurrent(),
    "batch first, without biases": Recurrent(batch_first=True, bias=False),
    "two layers in both directions": Recurrent(heads=2 * HIDDEN, num_layers=2, bidirectional=True, batch_first=True),
    "projected": Recurrent(heads=3, proj_size=3, num_layers=2),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_lstm_step_by_step_is_that_of_torch(name):
    model = KINDS[name]
    x = patches().requires_grad_()
    logits = model(x)
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), x)
    found = lrptrain.attribute(model, patches(), 1, "input_x_gradient")
    assert relative_error(found.logits, logits.detach()).max() < 1e-12
    assert relative_error(found.input, (x * gradient).sum(1).detach()).max() < 1e-10


@pytest.mark.parametrize("method", ["attnlrp", "gamma_lrp", "epsilon_lrp", "lrp"])
@pytest.mark.parametrize("name", KINDS)
def test_relevance_of_an_lstm_of_a_batch_is_that_of_its_samples(name, method):
    whole = lrptrain.attribute(KINDS[name], patches(), 1, method).scores
    single = lrptrain.attribute(KINDS[name], patches()[1:2], 1, method).scores
    assert relative_error(whole[1:2], single).max() < 1e-9
    assert torch.equal(whole, lrptrain.attribute(KINDS[name], patches(), 1, method).scores)


def test_one_step_of_an_lstm_by_hand():
    """h = o tanh(c), c = i g: R_h / 2 goes to o, and R_h / 4 each to i and g, which are linear in x."""
    model = Recurrent(first=True, bias=False)
    with torch.no_grad():
        x = model.embed(patches()).flatten(2).mT[:, 0]
        weight: Tensor = model.layer.get_parameter("weight_ih_l0")
        i, _, g, o = F.linear(x, weight).chunk(4, -1)
        hidden = o.sigmoid() * (i.sigmoid() * g.tanh()).tanh()
        of_hidden = hidden * model.head.weight[1]
        zero = torch.zeros_like(of_hidden)
        per_gate = torch.cat([of_hidden / 4 / i, zero, of_hidden / 4 / g, of_hidden / 2 / o], -1)
        expected = x * (per_gate @ weight)
    found = lrptrain.attribute(model, patches(), 1, "epsilon_lrp", epsilon=0.0)
    # The first patch has all relevance; that of its numbers passes the patch embedding by the same rule.
    kernel = model.embed.weight.detach()
    pixels = patches()[:, :, :8, :8]
    shares = (expected / x)[:, :, None, None, None] * kernel * pixels[:, None]
    assert found.input is not None
    assert relative_error(found.input[:, :8, :8], shares.sum((1, 2))).max() < 1e-10
    assert found.input[:, 8:].abs().max() == 0


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(12, WIDTH), nn.LSTM(WIDTH, HIDDEN, batch_first=True)

    def forward(self, input_ids: Tensor) -> Tensor:
        lengths = torch.full((len(input_ids),), input_ids.shape[1])
        return self.layer(nn.utils.rnn.pack_padded_sequence(self.words(input_ids), lengths, True))[1][0][0]


@pytest.mark.parametrize("model", [Packed(), Recurrent(kind="GRU"), Recurrent(kind="RNN")])
def test_other_recurrent_layers_are_refused(model):
    inputs = torch.arange(6).view(2, 3) if isinstance(model, Packed) else patches()
    with pytest.raises(lrptrain.UnsupportedOperationError, match=r"(lstm|gru|rnn_tanh|pack_\w+) in module"):
        lrptrain.attribute(model, inputs, 1, "attnlrp")
