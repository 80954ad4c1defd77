"""A map by a plan is the tape's map, or the tape serves: on models that names alone get wrong."""

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lrptrain
from lrptrain.relevance.fast.switch import plainly
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.swapped import plans
from lrptrain.relevance.swapped.swapped_pass import SwappedPass

IDS = torch.randint(0, 200, (2, 7), generator=torch.Generator().manual_seed(1))


class Doubled(torch.autograd.Function):
    """A user's function, whose backward pass is not that of its forward pass."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


class Text(nn.Module):
    """A block of attention and a gated feed-forward block, each part written in one of several ways."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(200, 32)
        self.q, self.k, self.v, self.gate, self.up, self.down, self.rest = (nn.Linear(32, 32) for _ in range(7))
        self.scale = nn.Parameter(torch.rand(32) + 0.5)
        self.head: nn.Module = nn.Linear(32, 5)
        self.dropout = nn.Dropout(0.5)

    def norm(self, x: Tensor) -> Tensor:
        if self.kind == "norms of torch":
            return F.layer_norm(x, (32,), self.scale)
        if self.kind == "norms by keywords":
            return F.layer_norm(input=x, normalized_shape=(32,), weight=self.scale)
        if self.kind == "root mean square":
            return F.rms_norm(x, (32,), self.scale)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.scale

    def activated(self, x: Tensor) -> Tensor:
        if self.kind == "written-out GELU":
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        if self.kind == "tanh-GELU":
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))
        if self.kind == "sigmoid":
            return x * torch.sigmoid(1.702 * x)
        if self.kind == "in place":
            return x.relu_()
        if self.kind == "a function of the user's":
            return F.silu(Doubled.apply(x))
        return F.silu(x)

    def weights(self, x: Tensor) -> Tensor:
        if self.kind == "softmax in pieces":
            powers = torch.exp(x - x.amax(-1, keepdim=True))
            return powers / powers.sum(-1, keepdim=True)
        return x.softmax(-1)

    def gated(self, x: Tensor) -> Tensor:
        gate, up = self.activated(self.gate(x)), self.up(x)
        if self.kind == "product in place":
            gate *= up
            return gate
        return gate * up

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        h = self.norm(x)
        if self.kind == "fused":
            attended = F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h))
        else:
            attended = self.weights(self.q(h) @ self.k(h).mT / math.sqrt(32)) @ self.v(h)
        x = x + self.dropout(attended)
        h = self.norm(x)
        gated = checkpoint(self.gated, h, use_reentrant=False) if self.kind == "checkpointed" else self.gated(h)
        if self.kind == "detach":
            gated = gated + self.rest(gated.detach())
        if self.kind == "no_grad":
            with torch.no_grad():
                y = self.q(x)
            x = x + y
        if self.kind == "reversed":
            gated = 1.0 - gated
        x = x + self.down(gated)
        return self.head(x.mean(1))


PLANNED = [
    "norms of torch", "norms by keywords", "root mean square", "written out", "written-out GELU", "tanh-GELU",
    "sigmoid", "in place", "softmax in pieces", "no_grad", "fused", "reversed",
]  # fmt: skip
METHODS = ["attnlrp", "cp_lrp"]
REFUSED = ["product in place", "detach", "a function of the user's", "checkpointed"]


def text(kind: str) -> Text:
    torch.manual_seed(0)
    return Text(kind).double().eval()


def by_tape(model: nn.Module, inputs, method: str = "attnlrp") -> lrptrain.Relevance:
    with plainly():
        return lrptrain.attribute(model, inputs, 0, method)


def state_of(model: nn.Module) -> plans.Planned:
    (state,) = plans._known[model].values()
    return state


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [*PLANNED, *REFUSED])
def test_a_map_is_that_of_the_tape(kind: str, method: str):
    model = text(kind)
    expected = by_tape(model, {"input_ids": IDS}, method)
    maps = [lrptrain.attribute(model, {"input_ids": IDS}, 0, method) for _ in range(2)]
    for found in maps:
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.input, expected.input, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.logits, expected.logits)
    assert torch.equal(maps[0].scores, maps[1].scores), "the first map is made as all later ones"
    is_planned = kind in PLANNED and (method, kind) != ("cp_lrp", "softmax in pieces")
    assert (state_of(model).plan is not None) == is_planned
    assert state_of(model).is_refused == (not is_planned)


class OnItsWay(nn.Module):
    """Multiplies by an activation or by a weight, as the data say: the same calls, and another rule."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.head = nn.Embedding(200, 32), nn.Linear(32, 32), nn.Linear(32, 5)
        self.scale = nn.Parameter(torch.rand(32) + 0.5)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        by = self.up(x) if float(x.detach()[0, 0, 0]) > 0 else self.up(self.scale).expand_as(x)
        return self.head((x * by).mean(1))


def test_another_way_through_the_model_is_noticed():
    torch.manual_seed(0)
    model = OnItsWay().double().eval()
    signs = model.table.weight[:, 0] > 0
    ways = [torch.arange(200)[chosen][:14].view(2, 7) for chosen in (signs, ~signs)]
    lrptrain.attribute(model, {"input_ids": ways[0]}, 0, "attnlrp")
    assert state_of(model).plan is not None
    found = lrptrain.attribute(model, {"input_ids": ways[1]}, 0, "attnlrp")
    torch.testing.assert_close(found.scores, by_tape(model, {"input_ids": ways[1]}).scores, rtol=1e-9, atol=1e-12)
    for number in range(2 * plans.MOST_PLANS):
        again = lrptrain.attribute(model, {"input_ids": ways[number % 2]}, 0, "attnlrp")
        expected = by_tape(model, {"input_ids": ways[number % 2]}).scores
        torch.testing.assert_close(again.scores, expected, rtol=1e-9, atol=1e-12)
    assert state_of(model).is_refused, "a model that chooses its way each time is left to the tape"


class Chosen(nn.Module):
    """One operation, of which the data choose an operand, an axis or an exponent: the same calls, and another rule."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.table, self.head = nn.Embedding(200, 32), nn.Linear(32, 5)
        self.one, self.two = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        is_first = float(x.detach()[0, 0, 0]) > 0
        a, b = self.one(x), self.two(x)
        chosen = a if is_first else b
        if self.kind == "inside of SiLU":
            y = a * torch.sigmoid(1.702 * chosen)
        elif self.kind == "outside of SiLU":
            y = chosen * torch.sigmoid(1.702 * a)
        elif self.kind == "inside of GELU":
            y = 0.5 * a * (1 + torch.erf(chosen / math.sqrt(2)))
        elif self.kind == "deep inside of GELU":
            y = 0.5 * a * (1 + torch.tanh(0.8 * (a + 0.044715 * chosen.pow(3))))
        elif self.kind == "square":
            y = a * chosen
        elif self.kind == "exponent":
            y = torch.pow(a.abs() + 1, 1 if is_first else -1)
        else:
            y = a.softmax(-1 if is_first else 0)
        return self.head((x + y).mean(1))


CHOSEN = ["inside of SiLU", "outside of SiLU", "inside of GELU", "deep inside of GELU", "square", "exponent", "axis"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("kind", CHOSEN)
def test_what_the_data_choose_within_a_rule_is_noticed(kind: str, first: int, method: str):
    torch.manual_seed(0)
    model = Chosen(kind).double().eval()
    signs = model.table.weight[:, 0] > 0
    ways = [torch.arange(200)[chosen][:14].view(2, 7) for chosen in (signs, ~signs)]
    for number in (first, 1 - first):
        inputs = {"input_ids": ways[number]}
        try:
            expected = by_tape(model, inputs, method).scores
        except lrptrain.UnsupportedOperationError:  # an exponent or an axis that the tape has no rule for
            assert kind in ("exponent", "axis")
            assert number == 1
            with pytest.raises(lrptrain.UnsupportedOperationError):
                lrptrain.attribute(model, inputs, 0, method)
            continue
        found = lrptrain.attribute(model, inputs, 0, method)
        torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-12)


class Weighed(nn.Module):
    """Values weighed by what a softmax makes, in one of several ways."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.table, self.head = nn.Embedding(200, 32), nn.Linear(32, 5)
        self.one, self.two, self.mix = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(7, 7)
        self.double().eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        key = self.one(x)
        weights = (x @ key.mT / 8).softmax(-1)
        if self.kind == "a mask of the input":
            y = F.scaled_dot_product_attention(x, key, self.two(x), attn_mask=weights)
        elif self.kind == "mixed maps":
            y = self.mix(weights) @ self.two(x)
        elif self.kind == "a gate":
            y = self.two(x) * key.softmax(-1)
        elif self.kind == "of the softmax alone":
            y = x + F.pad(weights, (0, 25))
        else:
            y = (weights @ weights) @ self.two(x)
        return self.head((x + y).mean(1))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "kind", ["a mask of the input", "mixed maps", "a gate", "of the softmax alone", "a product of maps"]
)
def test_what_softmaxes_make_is_weighed_as_by_the_tape(kind: str, method: str):
    model = Weighed(kind)
    expected = by_tape(model, {"input_ids": IDS}, method)
    for _ in range(2):
        found = lrptrain.attribute(model, {"input_ids": IDS}, 0, method)
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-9, atol=1e-12)


class Multiplied(nn.Module):
    """Words times a layer of theirs, by a function."""

    def __init__(self, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.one, self.head = nn.Embedding(200, 32), nn.Linear(32, 32), nn.Linear(32, 5)
        self.product = product
        self.double().eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        return self.head(self.product(x, self.one(x)).mean(1))


def test_a_plan_of_one_sample_does_not_hide_that_a_model_mixes_samples():
    model = Multiplied(lambda x, y: x * y.flip(0))
    lrptrain.attribute(model, {"input_ids": IDS[:1]}, 0, "attnlrp")
    assert state_of(model).plan is not None
    with pytest.raises(lrptrain.UnsupportedOperationError, match="sample"):
        lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")


def test_factors_given_by_name_are_left_to_the_tape():
    model = Multiplied(lambda x, y: torch.mul(input=x, other=y))
    found = lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert torch.equal(found.scores, by_tape(model, {"input_ids": IDS}).scores)
    assert state_of(model).is_refused


def test_a_plan_serves_texts_of_every_length_and_all_classes():
    model = text("fused")
    for length in (7, 3, 40):
        ids = torch.randint(0, 200, (3, length))
        for target, other in ((1, None), ([0, 4, 2], None), (None, None), (2, 3)):
            found = lrptrain.attribute(model, {"input_ids": ids}, target, other=other)
            with plainly():
                expected = lrptrain.attribute(model, {"input_ids": ids}, target, other=other)
            torch.testing.assert_close(found.scores, expected.scores, rtol=1e-9, atol=1e-12)
            assert found.method == expected.method == "attnlrp"
            assert torch.equal(found.target, expected.target)
    assert len(plans._known[model]) == 1


def counted(monkeypatch: pytest.MonkeyPatch) -> list[SwappedPass]:
    made: list[SwappedPass] = []
    first = SwappedPass.maps

    def noted(swapped: SwappedPass, explanation: Any) -> RelevanceMaps:
        made.append(swapped)
        return first(swapped, explanation)

    monkeypatch.setattr(SwappedPass, "maps", noted)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {"create_graph": True},
        {"layer": "head"},
        {"form": "explicit"},
        {"embeddings": "token"},
        {"composite": {"softmax": lrptrain.rules.pass_()}},
        {"target": lambda output: output[:, 0]},
        {"method": ["attnlrp", "input_x_gradient"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_a_plan_does_not_serve_is_left_to_the_tape(options, monkeypatch: pytest.MonkeyPatch):
    made = counted(monkeypatch)
    model = text("written out")
    lrptrain.attribute(model, {"input_ids": IDS}, **{"target": 0, "method": "attnlrp", **options})
    assert made == []


def test_a_model_in_training_mode_is_left_to_the_tape(monkeypatch: pytest.MonkeyPatch):
    made = counted(monkeypatch)
    model = text("written out").train()
    with pytest.warns(lrptrain.RelevanceWarning, match="train"):
        lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert made == []


def test_rules_of_the_users_are_left_to_the_tape(monkeypatch: pytest.MonkeyPatch):
    made = counted(monkeypatch)
    model = text("written out")
    with lrptrain.Composite(type_map={"softmax": lrptrain.rules.pass_()}):
        lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert made == []
    lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert len(made) == 1


def test_a_changed_model_has_another_plan():
    model = text("written out")
    lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    model.head = nn.Sequential(nn.Tanh(), nn.Linear(32, 5)).double().eval()
    model.kind = "softmax in pieces"
    found = lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    torch.testing.assert_close(found.scores, by_tape(model, {"input_ids": IDS}).scores, rtol=1e-9, atol=1e-12)
    assert (state_of(model).plan is not None, state_of(model).dropped) == (True, 1)


def test_no_graph_is_handed_out_and_weights_are_as_they_were():
    model = text("fused")
    model.up.weight.requires_grad_(False)
    before = [parameter.requires_grad for parameter in model.parameters()]
    maps = [lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp") for _ in range(2)]
    assert not any(
        x.requires_grad for found in maps for x in (found.scores, found.input, found.logits) if x is not None
    )
    assert [parameter.requires_grad for parameter in model.parameters()] == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_place_that_is_written_into_is_left_to_the_tape():
    class Overwritten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.places, self.head = nn.Embedding(200, 32), nn.Embedding(50, 32), nn.Linear(32, 5)

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.table(input_ids) + self.places(torch.arange(input_ids.shape[1]))
            y = self.head(x.mul_(2.0))
            return y.mean(1)

    torch.manual_seed(0)
    model = Overwritten().double().eval()
    for _ in range(2):
        found = lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
        torch.testing.assert_close(found.scores, by_tape(model, {"input_ids": IDS}).scores, rtol=1e-9, atol=1e-12)


def test_half_precision_is_planned_in_float32_and_runs_as_it_is():
    """The plan is tried in float32; the map of bfloat16 weights is as near to float64 as its digits allow."""
    exact = by_tape(text("fused"), {"input_ids": IDS}).scores
    model = text("fused").bfloat16()
    lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert state_of(model).plan is not None
    found = lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert found.logits.dtype == torch.bfloat16
    assert F.cosine_similarity(found.scores.double().flatten(), exact.flatten(), dim=0) > 0.999


def test_threads_take_turns():
    model = text("fused")
    expected = lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp").scores
    found: list[Tensor] = []

    def work() -> None:
        found.extend(lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp").scores for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 20
    assert all(torch.equal(each, expected) for each in found)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_thread_that_trains_the_model_meanwhile_gets_all_of_its_gradients():
    model = text("fused")
    lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    assert state_of(model).plan is not None
    finished, steps = threading.Event(), []

    def train() -> None:
        while not finished.is_set():
            found = torch.autograd.grad(model(IDS).sum(), [model.up.weight, model.down.weight], allow_unused=True)
            steps.append(all(each is not None for each in found))

    thread = threading.Thread(target=train)
    thread.start()
    while len(steps) < 50 and thread.is_alive():
        lrptrain.attribute(model, {"input_ids": IDS}, 0, "attnlrp")
    finished.set()
    thread.join()
    assert len(steps) >= 50
    assert all(steps)
