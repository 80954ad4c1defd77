"""Fused operations written out: the same numbers as torch's own, and relevance by hand."""

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

WIDTH, HIDDEN = 8, 6


class Recurrent(nn.Module):
    """An LSTM over the patches of an image, and a head on the mean of what it says."""

    def __init__(self, first: bool = False, heads: int = HIDDEN, packed: bool = False, **options: bool | int):
        super().__init__()
        self.first, self.packed = first, packed
        self.embed = nn.Conv2d(3, WIDTH, 8, 8, bias=False)
        self.lstm, self.head = nn.LSTM(WIDTH, HIDDEN, **options), nn.Linear(heads, 4, bias=False)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).mT
        if not self.lstm.batch_first:
            tokens = tokens.transpose(0, 1)
        if self.packed:
            lengths = torch.full((len(x),), 4)
            tokens = nn.utils.rnn.pack_padded_sequence(tokens, lengths, batch_first=True)
            return self.head(self.lstm(tokens)[1][0][-1])
        states, (hidden, cells) = self.lstm(tokens)
        if self.first:  # after the first patch
            return self.head(states[0])
        said = states.mean(1 if self.lstm.batch_first else 0)
        return self.head(said) + hidden.sum(0).sum(-1, keepdim=True) + cells.sum(0).sum(-1, keepdim=True)


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
    assert found.input is not None
    assert relative_error(found.logits, logits.detach()).max() < 1e-12
    assert relative_error(found.input, (x * gradient).sum(1).detach()).max() < 1e-10


@pytest.mark.parametrize("method", ["attnlrp", "gamma_lrp", "epsilon_lrp", "lrp"])
@pytest.mark.parametrize("name", KINDS)
def test_relevance_of_an_lstm_of_a_batch_is_that_of_its_samples(name, method):
    whole = lrptrain.attribute(KINDS[name], patches(), 1, method).scores
    singles = [lrptrain.attribute(KINDS[name], patches()[i : i + 1], 1, method).scores for i in range(3)]
    assert relative_error(whole, torch.cat(singles)).max() < 1e-9
    assert torch.equal(whole, lrptrain.attribute(KINDS[name], patches(), 1, method).scores)


def test_one_step_of_an_lstm_by_hand():
    """h = o tanh(c), c = i g: R_h / 2 goes to o, and R_h / 4 each to i and g, which are linear in x."""
    model = Recurrent(first=True, bias=False)
    with torch.no_grad():
        x = model.embed(patches()).flatten(2).mT[:, 0]
        weight: Tensor = model.lstm.get_parameter("weight_ih_l0")
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


def test_sequences_of_several_lengths_are_refused():
    with pytest.raises(lrptrain.UnsupportedOperationError, match="lstm in module 'lstm' has no propagation rule"):
        lrptrain.attribute(Recurrent(packed=True, batch_first=True), patches(), 1, "attnlrp")
