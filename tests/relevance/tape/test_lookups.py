"""Token ids in another order, shape or type: the map is of the text that was given."""

from collections.abc import Callable

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


# Lookups in other words, of the rows that `nn.Embedding` gives.
WORDS: dict[str, Callable[[nn.Embedding, Tensor], Tensor]] = {
    "indices": lambda table, ids: table.weight[ids],
    "index_select": lambda table, ids: table.weight.index_select(0, ids.flatten()).view(*ids.shape, 8),
    "a buffer": lambda table, ids: table.weight.detach()[ids],
}


@pytest.mark.parametrize("method", [*METHODS, "lrp", "leave_one_out"])
@pytest.mark.parametrize("name", WORDS)
def test_lookups_in_other_words(name, method):
    class Spelled(Bag):
        def forward(self, ids: Tensor) -> Tensor:
            return self.head(torch.tanh(self.inner(WORDS[name](self.words, ids))).mean(1))

    one, other = (lrptrain.attribute(model, IDS, 1, method) for model in (Spelled(), Bag()))
    torch.testing.assert_close(one.scores, other.scores, rtol=1e-9, atol=1e-12)


def test_a_later_lookup_by_indices_is_followed():
    """A decoder reads the text once more, behind a start token; positions are no words."""

    class Twice(Bag):
        def forward(self, ids: Tensor) -> Tensor:
            table = self.words.weight
            later = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1)
            states = (table[ids] + 2 * table[later] + self.inner.weight[torch.arange(3)]).tanh()
            return self.head(states.mean(1))

    model = Twice()
    (found, gradient) = (lrptrain.attribute(model, IDS, 1, "input_x_gradient"), torch.zeros(2, 3).double())
    embedded = model.words(IDS).detach().requires_grad_()
    start = model.words.weight[0].expand(2, 1, 8)
    states = embedded + 2 * torch.cat([start, embedded[:, :-1]], 1) + model.inner.weight[:3]
    (gradient,) = torch.autograd.grad(model.head(states.tanh().mean(1))[:, 1].sum(), embedded)
    torch.testing.assert_close(found.scores, (embedded * gradient).sum(-1).detach(), rtol=1e-9, atol=1e-12)


NOT_FOLLOWED: dict[str, Callable[[nn.Embedding, Tensor], Tensor]] = {
    "one_hot": lambda table, ids: nn.functional.one_hot(ids, 12).to(table.weight.dtype) @ table.weight,
    "matmul": lambda table, ids: (ids[..., None] == torch.arange(12)).to(table.weight.dtype) @ table.weight,
    "linear": lambda table, ids: nn.functional.linear(
        (ids[..., None] == torch.arange(12)).to(table.weight.dtype), table.weight.t()
    ),
    "gather": lambda table, ids: table.weight.gather(0, ids.flatten()[:, None].expand(-1, 8)).view(*ids.shape, 8),
    "embedding_bag": lambda table, ids: nn.functional.embedding_bag(ids, table.weight)[:, None],
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_lookups_that_are_not_followed_are_refused(name, beside):
    class Spelled(Bag):
        def forward(self, ids: Tensor) -> Tensor:
            words = self.words(ids).mean(1, keepdim=True) if beside else 0.0
            return self.head((words + NOT_FOLLOWED[name](self.words, ids)).mean(1))

    for method in METHODS:
        with pytest.raises(lrptrain.UnsupportedModelError, match=f"looks its token ids up by {name}: .*nn.Embedding"):
            lrptrain.attribute(Spelled(), IDS, 1, method)


def test_what_is_not_looked_up_is_told():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    model.forward = lambda ids: (ids[..., None] == torch.arange(12)).float().mean(1)[:, :2]  # type: ignore[method-assign]
    with pytest.raises(lrptrain.UnsupportedModelError, match="one-hot"):
        lrptrain.attribute(model, IDS, 1, "attnlrp")


# -- Several tables ----------------------------------------------------------------------------------------------------


class Several(nn.Module):
    """Tables in which a text is looked up, one by one, and a head on what they say."""

    def __init__(self, tables: int, read: Callable[[nn.ModuleList, Tensor], Tensor], width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(12, 4) for _ in range(tables))
        self.types, self.head = nn.Embedding(2, width), nn.Linear(width, 3, bias=False)
        self.read = read
        self.activation: nn.Module = nn.Identity()
        randomised(self)
        nn.init.zeros_(self.types.weight)

    def forward(self, ids: Tensor) -> Tensor:
        types = self.types(torch.zeros_like(ids))
        return self.head((self.activation(self.read(self.tables, ids)) + types).mean(1))


def in_two(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    return tables[0](ids) + 2 * tables[1](ids)


def in_two_one_later(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    """As an encoder and a decoder with a table of its own; 0 is the start token."""
    return tables[0](ids) + 2 * tables[1](torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1))


def in_shards(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    """As CANINE does, which has no table of all characters."""
    return torch.cat([table((ids + 1) * prime % 11) for table, prime in zip(tables, (3, 5, 7), strict=True)], -1)


def in_hashed_first(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    hashed = tables[1](ids % 5)
    return hashed + tables[0](ids)


def in_hashed_last(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    words = tables[0](ids)
    return words + tables[1](ids % 5)


SEVERAL = {
    "two tables": (2, in_two, 4),
    "a hash, then words": (2, in_hashed_first, 4),
    "words, then a hash": (2, in_hashed_last, 4),
    "a decoder's own": (2, in_two_one_later, 4),
    "shards": (3, in_shards, 12),
}


def contributions(model: Several, ids: Tensor) -> Tensor:
    """Embedding times gradient of every lookup, by autograd, summed where the token stands."""
    found = torch.zeros(ids.shape, dtype=torch.float64)
    made: list[Tensor] = []
    handles = [table.register_forward_hook(lambda *call: made.append(call[-1])) for table in model.tables]
    gradients = torch.autograd.grad(model(ids)[:, 1].sum(), made)
    for handle, looked_up, gradient in zip(handles, made, gradients, strict=True):
        handle.remove()
        product = (looked_up * gradient).sum(-1).detach()
        if model.read is in_two_one_later and looked_up is made[1]:
            found[:, :-1] += product[:, 1:]  # what was read of a start token is of no word
        else:
            found += product
    return found


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("method", ["input_x_gradient", "integrated_gradients", "attnlrp", "epsilon_lrp"])
def test_a_token_is_worth_what_all_of_its_lookups_are(name, method):
    model = Several(*SEVERAL[name])
    state = {key: x.clone() for key, x in model.state_dict().items()}
    # The model is linear: every method gives each lookup what it adds to the logit.
    found = lrptrain.attribute(model, IDS, 1, method).scores
    torch.testing.assert_close(found, contributions(model, IDS), rtol=1e-4, atol=1e-5)  # epsilon's share
    singles = [lrptrain.attribute(model, row[None], 1, method).scores for row in IDS]
    torch.testing.assert_close(found, torch.cat(singles), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(lrptrain.attribute(model, IDS, 1, method).scores, found, rtol=0, atol=0)
    assert all(torch.equal(x, state[key]) for key, x in model.state_dict().items())


@pytest.mark.parametrize("name", SEVERAL)
def test_gradients_of_several_lookups_are_those_of_autograd(name):
    model = Several(*SEVERAL[name])
    model.activation = nn.Tanh()
    found = lrptrain.attribute(model, IDS, 1, "input_x_gradient").scores
    torch.testing.assert_close(found, contributions(model, IDS), rtol=1e-9, atol=1e-12)
    path = lrptrain.attribute(model, IDS, 1, "integrated_gradients")
    assert path.convergence_delta is not None
    assert path.convergence_delta.abs().max() < 1e-9


def segments_first(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    segments = tables[1](ids * 0 + 11)
    return segments + tables[0](ids)


def segments_last(tables: nn.ModuleList, ids: Tensor) -> Tensor:
    words = tables[0](ids)
    return words + tables[1](ids * 0 + 11)


@pytest.mark.parametrize("read", [segments_first, segments_last])
@pytest.mark.parametrize("ids", [IDS, IDS[:1, :1]])
def test_numbers_that_are_equal_for_all_ids_are_constants(read, ids):
    model = Several(2, read, 4)
    found = lrptrain.attribute(model, ids, 1, "input_x_gradient").scores
    # A mean over the tokens, and a head: each word is worth its own share.
    expected = (model.tables[0](ids) @ model.head.weight[1]).detach() / ids.shape[1]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_hash_of_a_text_of_one_token_is_one():
    model = Several(2, in_hashed_last, 4)
    found = lrptrain.attribute(model, IDS[:, :1], 1, "input_x_gradient").scores
    torch.testing.assert_close(found, contributions(model, IDS[:, :1]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("order", ["tokens first", "hash first"])
def test_words_in_another_order_beside_a_second_table_are_refused(order):
    def read(tables: nn.ModuleList, ids: Tensor) -> Tensor:
        hashed = tables[1](ids % 5) if order == "hash first" else 0.0
        words = tables[0](ids.t()).transpose(0, 1)
        return words + (hashed if order == "hash first" else tables[1](ids % 5))

    with pytest.raises(lrptrain.UnsupportedModelError, match="in another order or shape"):
        lrptrain.attribute(Several(2, read, 4), IDS, 1, "attnlrp")


def test_one_table_with_two_hashes_is_refused():
    model = Several(1, lambda tables, ids: tables[0](ids * 5 % 11) + tables[0](ids * 7 % 11), 4)
    with pytest.raises(lrptrain.UnsupportedModelError, match="several tables that cannot be told apart"):
        lrptrain.attribute(model, IDS, 1, "attnlrp")


class Shifting(nn.Module):
    """A decoder that shifts a copy of its token ids in place, as mBART's does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(9, 5).double()
        self.encoder = nn.Linear(5, 5).double()
        self.head = nn.Linear(5, 3).double()

    def embedded(self, words: Tensor, shifted: Tensor) -> Tensor:
        return self.head(torch.relu(self.encoder(words)).mean(1) + torch.relu(shifted).mean(1))

    def forward(self, input_ids: Tensor) -> Tensor:
        decoded = input_ids.clone()
        decoded[:, 1:] = decoded[:, :-1].clone()
        decoded[:, 0] = 2
        return self.embedded(self.words(input_ids), self.words(decoded))


@pytest.mark.parametrize("method", ["attnlrp", "input_x_gradient"])
def test_ids_shifted_in_place_are_the_decoders_copy_and_no_hash(method):
    model = Shifting()
    ids = torch.tensor([[1, 3, 4, 8], [5, 6, 7, 1]])
    scores = lrptrain.attribute(model, ids, 1, method).scores
    words = model.words(ids).detach().requires_grad_()
    start = model.words.weight[2].detach().expand(2, 1, 5)
    logits = model.embedded(words, torch.cat([start, words[:, :-1]], 1))
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), words)
    if method == "input_x_gradient":
        torch.testing.assert_close(scores, (words * gradient).sum(-1).detach(), rtol=1e-12, atol=1e-14)
    assert bool((scores[:, :-1] != 0).all())
