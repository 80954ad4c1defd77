"""Token ids in another order, shape or type: the map is of the text that was given."""

import pytest
import torch
from model_zoo import randomised
from torch import Tensor, nn

import lrptrain

IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
CHOICES = torch.arange(12).view(2, 3, 2)
METHODS = ("attnlrp", "input_x_gradient", "integrated_gradients")


class Bag(nn.Module):
    """Words that are looked up as `arrange(ids)` says, and averaged as if they had not been."""

    def __init__(self, arrange=lambda ids: ids, back=lambda x: x):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.arrange, self.back = arrange, back
        randomised(self)

    def forward(self, ids: Tensor) -> Tensor:
        states = torch.tanh(self.inner(self.words(self.arrange(ids))))
        return self.head(self.back(states).mean(1))


ORDERS = {
    "tokens first": (lambda ids: ids.transpose(0, 1).contiguous(), lambda x: x.transpose(0, 1)),
    "in one row": (lambda ids: ids.flatten(), lambda x: x.view(-1, 3, 8)),
    "int32": (lambda ids: ids.int(), lambda x: x),
    "a view": (lambda ids: ids.view(-1, 3), lambda x: x),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("samples", [1, 2])
def test_the_order_of_the_lookup_does_not_matter(name, method, samples):
    one, other = (lrptrain.attribute(model, IDS[:samples], 1, method) for model in (Bag(*ORDERS[name]), Bag()))
    assert one.scores.shape == (samples, 3)
    torch.testing.assert_close(one.scores, other.scores, rtol=1e-9, atol=1e-12)


def test_as_many_tokens_as_samples():
    ids = torch.tensor([[1, 2], [3, 4]])
    one, other = (lrptrain.attribute(m, ids, 1, "attnlrp").scores for m in (Bag(*ORDERS["tokens first"]), Bag()))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_texts_of_a_sample_stand_one_behind_the_other(method):
    """Multiple choice: `[batch, choices, tokens]`, of which every choice runs as a sample of its own."""

    class Choice(Bag):
        def forward(self, ids: Tensor) -> Tensor:
            logits = super().forward(ids.view(-1, ids.shape[-1]))[:, 0]
            return logits.view(ids.shape[:2])

    model = Choice()
    found = lrptrain.attribute(model, CHOICES, 1, method).scores
    alone = lrptrain.attribute(model, CHOICES[1:], 1, method).scores
    assert found.shape == (2, 6)
    torch.testing.assert_close(found[1:], alone, rtol=1e-9, atol=1e-12)
    # The logit of a choice comes from its own tokens only.
    assert not found[:, [0, 1, 4, 5]].any()
    expected = lrptrain.attribute(Bag(), CHOICES[:, 1], 0, method).scores
    torch.testing.assert_close(found[:, 2:4], expected, rtol=1e-9, atol=1e-12)


EQUATIONS = ["...d,de->...e", "...d,de", "abd,de", "btd,de->bte", "b...d,de->b...e", "...d,...de->...e"]


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("method", ["attnlrp", "epsilon_lrp", "lrp", "gamma_lrp", "input_x_gradient"])
def test_an_einsum_may_leave_out_axes_and_the_output(equation, method):
    weight = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = Bag(back=lambda x: torch.einsum(equation, x, weight))
    other = Bag(back=lambda x: torch.einsum("btd,de->bte", x, weight))
    maps = [lrptrain.attribute(model, IDS, 1, method).scores for model in (one, other)]
    torch.testing.assert_close(*maps, rtol=1e-9, atol=1e-12)


def test_what_is_not_looked_up_is_told():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    model.forward = lambda ids: nn.functional.one_hot(ids, 12).to(torch.float32).mean(1)[:, :2]  # type: ignore[method-assign]
    with pytest.raises(lrptrain.UnsupportedModelError, match="one-hot"):
        lrptrain.attribute(model, IDS, 1, "attnlrp")
