"""Mixtures of experts: tokens are sent to some of the experts each, whose results are added up where they came from."""

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import Block, Small, patches, same
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

EXPERTS, CHOSEN, WIDTH = 4, 2, 8
METHODS = ("attnlrp", "gamma_lrp", "epsilon_lrp", "lrp", "transformer_attribution", "rollout")


class Experts(nn.Module):
    """A router and its experts, as most models of the shelf have them."""

    def __init__(self, renormalised: bool = True, sparse: bool = True):
        super().__init__()
        self.router, self.renormalised, self.sparse = nn.Linear(WIDTH, EXPERTS, bias=False), renormalised, sparse
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, WIDTH)
        weights, chosen = self.router(tokens).softmax(-1).topk(CHOSEN, -1)
        if self.renormalised:
            weights /= weights.sum(-1, keepdim=True)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            if self.sparse:
                result.index_add_(0, rows, F.relu(expert(tokens[rows])) * weights[rows, places, None])
            else:
                weight = (weights * (chosen == number)).sum(-1, keepdim=True)
                result = result + F.relu(expert(tokens)) * weight
        return result.view(x.shape)


class Router(Experts):
    """The same with a softmax of the chosen scores only."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, WIDTH)
        scores, chosen = self.router(tokens).topk(CHOSEN, -1)
        weights = scores.softmax(-1)
        rows = torch.arange(len(tokens))
        result = torch.zeros_like(tokens)
        for place in range(CHOSEN):
            for number, expert in enumerate(self.experts):
                sent = rows[chosen[:, place] == number]
                result.index_add_(0, sent, F.relu(expert(tokens[sent])) * weights[sent, place, None])
        return result.view(x.shape)


class Direct(nn.Module):
    """Experts without anything that takes relevance away: no bias, no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, WIDTH, 4, 4, bias=False), nn.Linear(WIDTH, 4, bias=False)
        self.experts = Experts()
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.experts(self.embed(x).flatten(2).mT).mean(1))


@pytest.mark.parametrize("method", METHODS)
def test_batch_is_singles_and_a_second_call_is_the_first(method):
    model = Small(after=Experts()) if method != "rollout" else Small(Experts())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole = lrptrain.attribute(model, patches(), 1, method).scores
    singles = torch.cat([lrptrain.attribute(model, patches()[i : i + 1], 1, method).scores for i in range(3)])
    assert relative_error(whole, singles).max() < 1e-9
    assert torch.equal(lrptrain.attribute(model, patches(), 1, method).scores, whole)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("renormalised", [True, False])
def test_sent_tokens_get_the_relevance_of_tokens_that_all_experts_see(renormalised):
    """With weights of 0 for those that were not chosen the map is the same: by a sum instead of `index_add`."""
    sent, seen = (Small(after=Experts(renormalised, sparse)) for sparse in (True, False))
    same(sent, seen, patches(), ("attnlrp", "gamma_lrp", "lrp", "input_x_gradient"))


def test_chosen_probabilities_over_their_sum_are_a_softmax_of_the_chosen_scores():
    same(Small(after=Experts()), Small(after=Router()), patches(), ("attnlrp", "gamma_lrp", "lrp", "cp_lrp"))


def test_experts_conserve_relevance():
    relevance = lrptrain.attribute(Direct(), patches(), 1, "epsilon_lrp", epsilon=0.0)
    assert relevance.input is not None
    assert (relevance.input.flatten(1).sum(1) - relevance.logits[:, 1]).abs().max() < 1e-12


def test_a_choice_is_repeated_as_it_was_made():
    """Of equal numbers, the ones that were chosen count, whichever another call would choose."""
    from lrptrain.relevance.passes.recording import run_on_tape

    x = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0]])
    chosen: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        values, indices = x.topk(2)
        chosen.append(indices)
        return values

    tape, _ = run_on_tape(Block(function), x)
    (node,) = (node for node in tape.nodes if node.name == "topk")
    assert torch.equal(node.call(lambda _: torch.arange(5.0)[None]), chosen[0].to(torch.float32))


def test_constants_that_experts_add_to_are_kept_as_they_were():
    """y = c + x at the rows of x: by the epsilon rule the constant takes c / (c + x) of the relevance."""

    def constant(x: Tensor) -> Tensor:
        return torch.linspace(-1.0, 1.0, WIDTH, dtype=x.dtype).expand_as(x).clone()

    def in_place(x: Tensor) -> Tensor:
        result = constant(x)
        result.index_add_(1, torch.arange(16), x)
        return result

    added = Small(after=Block(lambda x: constant(x) + x))
    same(Small(after=Block(in_place)), added, patches(), ("attnlrp", "gamma_lrp", "lrp"))
