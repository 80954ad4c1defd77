"""Whose a text's relevance is: the word's, its position's, or of both."""

import pytest
import torch
from torch import nn

import lrptrain
from tests.relevance.model_zoo import KINDS

METHODS = ["attnlrp", "cp_lrp", "gamma_lrp", "epsilon_lrp", "lrp"]
IDS = torch.tensor([[5, 9, 3, 7], [5, 9, 3, 8]])


class Sums(nn.Module):
    """Logits that are linear in the sum of word and position embeddings."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(12, 6), nn.Embedding(4, 6)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, input_ids):
        return self.head((self.words(input_ids) + self.positions(torch.arange(4))).mean(1))


@pytest.mark.parametrize("method", ["attnlrp", "cp_lrp", "epsilon_lrp"])
def test_of_a_linear_model_they_are_its_terms(method):
    torch.manual_seed(0)
    model = Sums().double()
    row = model.head.weight[1] / 4
    words, positions = model.words(IDS) @ row, (model.positions.weight @ row).expand(2, -1)
    for embeddings, wanted in (("token", words), ("position", positions), ("all", words + positions)):
        scores = lrptrain.attribute(model, IDS, 1, method, embeddings=embeddings).scores
        torch.testing.assert_close(scores, wanted.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_the_parts_add_up_to_the_whole(family, method):
    model = KINDS[family].build(False)
    token, position, both = (
        lrptrain.attribute(model, IDS, 1, method, embeddings=each).scores for each in ("token", "position", "all")
    )
    assert position.abs().max() > 1e-3 * both.abs().max()
    torch.testing.assert_close(token + position, both)
    torch.testing.assert_close(both, lrptrain.attribute(model, IDS, 1, method).scores)


@pytest.mark.parametrize("method", ["attnlrp", "lrp"])
def test_where_no_position_is_added_all_is_the_words(method):
    model = KINDS["llama"].build(False)
    token, position, both = (
        lrptrain.attribute(model, IDS, 1, method, embeddings=each).scores for each in ("token", "position", "all")
    )
    torch.testing.assert_close(token, both)
    assert not position.any()


def test_what_cannot_be_told_apart_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(
        lrptrain.UnsupportedMethodError, match=r"embeddings='token' is for the words of a text, not for image"
    ):
        lrptrain.attribute(model, torch.randn(2, 3, 2, 2), 1, "attnlrp", embeddings="token")
    with pytest.raises(ValueError, match=r"unknown embeddings 'word'; known are all, token, position"):
        lrptrain.attribute(Sums(), IDS, 1, "attnlrp", embeddings="word")
