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


class Cells(Recurrent):
    """The same, step by step by the cells of torch."""

    def forward(self, x: Tensor) -> Tensor:
        state, states = None, []
        for token in self.embed(x).flatten(2).unbind(-1):
            state = self.layer(token, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return self.head(torch.stack(states, 1).mean(1))


KINDS = {
    "as it is": Recurrent(),
    "batch first, without biases": Recurrent(batch_first=True, bias=False),
    "two layers in both directions": Recurrent(heads=2 * HIDDEN, num_layers=2, bidirectional=True, batch_first=True),
    "projected": Recurrent(heads=3, proj_size=3, num_layers=2),
    "GRU": Recurrent(kind="GRU"),
    "GRU, two layers in both directions": Recurrent(heads=2 * HIDDEN, kind="GRU", num_layers=2, bidirectional=True),
    "RNN": Recurrent(kind="RNN", batch_first=True),
    "RNN, relu": Recurrent(kind="RNN", nonlinearity="relu", num_layers=2, bias=False),
    "LSTM cell": Cells(kind="LSTMCell"),
    "GRU cell": Cells(kind="GRUCell", bias=False),
    "RNN cell": Cells(kind="RNNCell"),
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


@pytest.mark.parametrize("kind", ["GRU", "GRUCell"])
def test_gates_of_a_gru_keep_relevance(kind):
    """Without biases all relevance of the logit arrives: 1 - z is a gate of its own, without a constant."""
    model = (Cells if "Cell" in kind else Recurrent)(kind=kind, bias=False)
    if kind == "GRU":
        model.forward = lambda x: model.head(model.layer(model.embed(x).flatten(2).permute(2, 0, 1))[0].mean(0))  # type: ignore[method-assign]
    for form in ("gradient", "explicit"):
        found = lrptrain.attribute(model, patches(), 1, "attnlrp", form=form)
        torch.testing.assert_close(found.scores.sum(1), found.logits[:, 1], rtol=1e-9, atol=1e-12)


class Packed(nn.Module):
    """A recurrent layer over texts, packed or each by itself, and a head on its states and its last state."""

    def __init__(self, kind: str, packed: bool, is_sorted: bool):
        super().__init__()
        self.words, self.packed, self.is_sorted = nn.Embedding(12, WIDTH), packed, is_sorted
        self.layer: Any = getattr(nn, kind)(WIDTH, HIDDEN, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, 4)
        randomised(self)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        lengths, words = attention_mask.sum(1), self.words(input_ids)
        if not self.packed:
            read = [self.layer(text[None, :length]) for text, length in zip(words, lengths.tolist(), strict=True)]
            return torch.cat([self.said(states.sum(1), last) for states, last in read])
        sequences = nn.utils.rnn.pack_padded_sequence(words, lengths, True, enforce_sorted=self.is_sorted)
        states, last = self.layer(sequences)
        padded, found = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=words.shape[1])
        assert torch.equal(found, lengths)
        return self.said(padded.sum(1), last)

    def said(self, states: Tensor, last: Any) -> Tensor:
        ends = last if isinstance(last, tuple) else (last,)
        return self.head(states) + sum(end[-1].sum(-1, keepdim=True) for end in ends)


FEW: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 3}, "epsilon_lrp": {"epsilon": 0.0}}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [(5, 4, 2), (2, 4, 3)])
def test_packed_texts_are_those_by_themselves(kind, lengths):
    ids = torch.arange(15).view(3, 5) % 11
    inputs = {"input_ids": ids, "attention_mask": (torch.arange(5) < torch.tensor(lengths)[:, None]).long()}
    for method in ("input_x_gradient", "attnlrp", "epsilon_lrp", "lrp", "integrated_gradients"):
        options = FEW.get(method, {})
        packed, single = (
            lrptrain.attribute(Packed(kind, is_packed, lengths[0] == 5), inputs, 1, method, **options)
            for is_packed in (True, False)
        )
        assert relative_error(packed.logits, single.logits).max() < 1e-10
        assert relative_error(packed.scores, single.scores).max() < 1e-8, method
        assert not packed.scores[inputs["attention_mask"] == 0].any()
