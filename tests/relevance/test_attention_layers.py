"""How attention blocks follow one another: side by side, as differences, with something else that mixes tokens."""

from dataclasses import replace

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from small_models import Block, Small, patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.tape.nodes import Node, Value, map_nested
from lrptrain.relevance.tokens import attention_layers
from lrptrain.relevance.tokens.provenance import TokenProvenance
from lrptrain.relevance.tokens.token_walk import numbered

ON_MAPS = (
    "raw_attention", "rollout", "generic_attention", "transformer_attribution", "attention_gradcam",
    "attention_x_gradient", "partial_lrp", "attention_flow", "attention_norm",
)  # fmt: skip


def probabilities(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The map of one attention, and its values."""
    q, k, v = module(x).chunk(3, -1)
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1), v


class Towers(nn.Module):
    """Two layers on 16 patches; in each, what `join` makes of two attentions is added to the states."""

    def __init__(self, join: str):
        super().__init__()
        self.join, self.embed, self.head = join, nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.first, self.second = (nn.ModuleList(nn.Linear(8, 24) for _ in range(2)) for _ in range(2))
        randomised(self)
        self.factor = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))
        self.maps: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.maps = []
        x = self.embed(x).flatten(2).transpose(1, 2)
        for first, second in zip(self.first, self.second, strict=True):
            a, v = probabilities(first, x)
            b, other = probabilities(second, x)
            self.maps += [a, b]
            if self.join == "beside":
                x = x + a @ v + b @ other
            elif self.join == "own residuals":
                x = (x + a @ v + (x + b @ other)) / 2
            elif self.join == "not alone":
                x = x + (a @ v + x.tanh()) + (b @ other + x.sin())
            elif self.join == "stacked":
                x = x + torch.stack([a @ v, b @ other]).sum(0)
            elif self.join == "difference":
                x = x + (a @ v - self.factor * (b @ v))
            else:  # the same, before the values
                self.maps[-2:] = [a - self.factor * b]
                x = x + self.maps[-1] @ v
        return self.head(x.mean(1))

    def by_hand(self, inputs: Tensor, target: int) -> tuple[Tensor, Tensor]:
        """Rollout and generic attention from the maps that the plain model keeps."""
        logits = self(inputs)
        gradients = torch.autograd.grad(logits[:, target].sum(), self.maps)
        weights = [a.detach() for a in self.maps]
        rollout = generic = torch.eye(16, dtype=torch.float64).expand(len(inputs), 16, 16)
        residuals = 2 if self.join == "own residuals" else 1
        count = 1 if self.join == "before" else 2
        for i in range(0, len(weights), count):
            if self.join == "difference":
                layer = [weights[i] - self.factor.detach() * weights[i + 1]]
            else:
                layer = weights[i : i + count]
            slopes = gradients[i : i + len(layer)]
            step = residuals * torch.eye(16, dtype=torch.float64) + sum(a.clamp(min=0) for a in layer)
            rollout = step / step.sum(-1, keepdim=True) @ rollout
            weighted = torch.stack([(a * g).clamp(min=0) for a, g in zip(layer, slopes, strict=True)]).sum(0)
            generic = generic + weighted @ generic
        return rollout.mean(1), generic.mean(1)


@pytest.mark.parametrize("join", ["beside", "own residuals", "not alone", "stacked", "difference", "before"])
def test_attention_side_by_side_and_differential_attention(join):
    model = Towers(join)
    rollout, generic = model.by_hand(patches(), 2)
    assert relative_error(lrptrain.attribute(model, patches(), 2, "rollout").scores, rollout).max() < 1e-12
    assert relative_error(lrptrain.attribute(model, patches(), 2, "generic_attention").scores, generic).max() < 1e-12


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "raw_attention", "attention_flow"])
def test_a_difference_before_the_values_is_one_behind_them(method):
    first, second = (lrptrain.attribute(Towers(join), patches(), 2, method) for join in ("difference", "before"))
    assert relative_error(first.scores, second.scores).max() < 1e-9


def test_relevance_at_a_difference_is_refused():
    for method in ("transformer_attribution", "partial_lrp"):
        with pytest.raises(lrptrain.UnsupportedMethodError, match=r"differential attention.*generic_attention"):
            lrptrain.attribute(Towers("difference"), patches(), 2, method)


def test_a_batch_is_its_samples():
    for join in ("stacked", "difference"):
        for method in ("rollout", "generic_attention", "attention_x_gradient", "attention_gradcam"):
            whole = lrptrain.attribute(Towers(join), patches(), 1, method).scores
            singles = [lrptrain.attribute(Towers(join), patches()[i : i + 1], 1, method).scores for i in range(3)]
            assert relative_error(whole, torch.cat(singles)).max() < 1e-9


class Streams(nn.Module):
    """Patches and places in streams of their own, which share their scores only; the classifier reads the patches.

    With `joined`, it reads the places, too.
    """

    def __init__(self, joined: bool = False):
        super().__init__()
        self.joined, self.embed, self.places = joined, nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(16, 8))
        self.patches, self.layout = (nn.ModuleList(nn.Linear(8, 24) for _ in range(2)) for _ in range(2))
        self.head = nn.Linear(8, 4)
        randomised(self)
        self.maps: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.maps = []
        states = self.embed(x).flatten(2).transpose(1, 2)
        places = self.places.expand(len(x), 16, 8)
        for layer, layout in zip(self.patches, self.layout, strict=True):
            q, k, v = layer(states).chunk(3, -1)
            query, key, value = layout(places).chunk(3, -1)
            scores = q @ k.mT / 8**0.5 + query @ key.mT / 4
            places = places + scores.softmax(-1) @ value
            self.maps.append(scores.softmax(-1))
            states = states + self.maps[-1] @ v
        pooled = states.mean(1) + places.square().mean(1) if self.joined else states.mean(1)
        return self.head(pooled)


def test_a_stream_that_only_gives_scores_has_no_part_in_the_product():
    model = Streams()
    gradients = torch.autograd.grad(model(patches())[:, 2].sum(), model.maps)
    unit = torch.eye(16, dtype=torch.float64)
    rollout = generic = unit
    for a, g in zip(model.maps, gradients, strict=True):
        rollout = (a + unit) / 2 @ rollout
        generic = generic + (a * g).clamp(min=0) @ generic
    expected = {
        "rollout": rollout.mean(1),
        "generic_attention": generic.mean(1),
        "raw_attention": model.maps[1].mean(1),
    }
    for method, scores in expected.items():
        assert relative_error(lrptrain.attribute(model, patches(), 2, method).scores, scores.detach()).max() < 1e-12
    assert len(lrptrain.record(model, patches()).attention) == 2
    with pytest.raises(lrptrain.UnsupportedMethodError, match="tokens"):
        lrptrain.attribute(Streams(joined=True), patches(), 2, "rollout")


# What mixes tokens beside the attention


class Two(Small):
    """Two blocks with something between them."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        for i in range(2):
            q, k, v = self.qkv(tokens).chunk(3, -1)
            tokens = tokens + self.out(F.scaled_dot_product_attention(q, k, v))
            tokens = self.between(tokens) if i == 0 else tokens
        return self.head(tokens.mean(1))


KERNEL = torch.ones(8, 1, 3, dtype=torch.float64) / 3
NEXT = (torch.arange(16) + 1).remainder(16)[:, None]
MIXING = {
    "conv1d": lambda x: x + F.conv1d(x.mT, KERNEL, padding=1, groups=8).mT,
    "cumsum": lambda x: x + x.cumsum(1) / 16,
    "mean": lambda x: x * x.mean(1, keepdim=True).sigmoid(),
    "amax": lambda x: x + x.amax(1, keepdim=True),
    "linear": lambda x: x + F.linear(x.mT, torch.ones(16, 16, dtype=torch.float64) / 16).mT,
    "matmul": lambda x: x + (x @ x.mT).relu() @ x / 99,
    "einsum": lambda x: x + torch.einsum("ij,bjd->bid", torch.ones(16, 16, dtype=torch.float64) / 16, x),
    "add": lambda x: x + x.roll(1, 1),
    "conv2d": lambda x: x + F.conv2d(x.mT.unflatten(2, (4, 4)), KERNEL[..., None], None, 1, (1, 0), 1, 8).flatten(2).mT,
    "softmax": lambda x: x + x.softmax(1),
    "sort": lambda x: x + x.sort(1).values,
    "sub": lambda x: x + (x[:, :, None] - x[:, None]).norm(dim=-1)[..., :8],  # differences of tokens
    "layer_norm": lambda x: F.layer_norm(x, (16, 8)),
    "group_norm": lambda x: F.group_norm(x.mT, 2).mT,
    "mul": lambda x: x * x[:, :1].tanh(),
    "scatter": lambda x: x.scatter(1, NEXT.expand(len(x), 16, 8), x),
}  # fmt: skip
APART = [
    lambda x: x + F.gelu(F.layer_norm(x, (8,))),
    lambda x: x + F.conv1d(x.mT, torch.eye(8, dtype=torch.float64)[..., None]).mT,
    lambda x: x + F.conv2d(x.mT.unflatten(2, (4, 4)), torch.eye(8, dtype=torch.float64)[..., None, None]).flatten(2).mT,
    lambda x: torch.cat([x[:, :3] * 2, x[:, 3:]], 1),
    lambda x: x + F.rms_norm(x.reshape(-1, 8), (8,)).view(x.shape),
    lambda x: x * x.square().mean(-1, keepdim=True).add(1e-6).rsqrt(),
    lambda x: x + x.softmax(-1).cumsum(-1),
    lambda x: x + x.roll(1, 1).roll(-1, 1),
    lambda x: x + torch.einsum("bnd,de->bne", x, torch.eye(8, dtype=torch.float64)),
    lambda x: x * torch.sigmoid(x.transpose(0, 1).mean(-1, keepdim=True)).transpose(0, 1),
    # The second of two experts: the first is scattered away. The third is its weight for each token.
    lambda x: x * x.scatter(-1, x.argmax(-1, keepdim=True), float("-inf")).softmax(-1),
    lambda x: x + x.scatter(-1, x.argmax(-1, keepdim=True), x.sin()),
    # What was beside constants is added to its own token.
    lambda x: (
        x.flatten(0, 1)
        .index_add(0, torch.arange(16 * len(x)), torch.cat([x, torch.ones_like(x)], -1)[..., :8].flatten(0, 1))
        .view(x.shape)
    ),
]


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("samples", [2, 16])
def test_what_mixes_tokens_between_blocks_is_refused_by_name(name, samples):
    model = Two(Block(MIXING[name]))
    for method in ("rollout", "generic_attention", "transformer_attribution", "attention_norm"):
        with pytest.raises(lrptrain.UnsupportedMethodError, match=f"^{name} in module 'between' .*tokens.*attnlrp"):
            lrptrain.attribute(model, patches(samples), 1, method)
    lrptrain.attribute(model, patches(samples), 1, "raw_attention")  # one block needs nothing of what is before it


@pytest.mark.parametrize("case", range(len(APART)))
def test_what_keeps_tokens_apart_is_served(case):
    for samples in (1, 3, 16):
        lrptrain.attribute(Two(Block(APART[case])), patches(samples), 1, "rollout")


def test_linear_attention_behind_the_last_block_is_no_pooling():
    linear = Block(lambda x: x + x @ x.mT @ x / 99)
    for method in ("rollout", "raw_attention"):
        with pytest.raises(lrptrain.UnsupportedMethodError, match=r"^matmul in module 'after' weighs tokens by act.*"):
            lrptrain.attribute(Small(after=linear), patches(), 1, method)
    pooled = Block(lambda x: x + (x @ x.mT).exp() @ x / 99)
    assert (lrptrain.record(Small(after=pooled), patches()).pooling >= 0).all()


def test_mixing_before_the_first_block_is_not_between_blocks():
    model = Small(Block(MIXING["conv1d"]))
    assert lrptrain.attribute(model, patches(), 1, "rollout").scores.isfinite().all()


def test_a_map_that_is_used_twice_is_refused():
    class Shared(Small):
        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            a, v = probabilities(self.qkv, tokens)
            tokens = tokens + a @ v
            return self.head((tokens + a @ self.out(tokens)).mean(1))

    with pytest.raises(lrptrain.UnsupportedMethodError, match="uses the probabilities of an earlier block once more"):
        lrptrain.attribute(Shared(), patches(), 1, "generic_attention")


def test_towers_are_neither_in_a_row_nor_side_by_side():
    class Apart(Small):
        def forward(self, x: Tensor) -> Tensor:
            start = self.embed(x).flatten(2).transpose(1, 2)
            towers = []
            for sign in (1, -1):
                tokens = start
                for _ in range(2):
                    a, v = probabilities(self.qkv, sign * tokens)
                    tokens = tokens + a @ v
                towers.append(tokens)
            return self.head((towers[0] + towers[1]).mean(1))

    with pytest.raises(lrptrain.UnsupportedMethodError, match="neither follows the attention before it nor acts"):
        lrptrain.attribute(Apart(), patches(), 1, "rollout")


# Square, but not over tokens


class Channels(nn.Module):
    """Attention of channels to channels, as many as there are tokens."""

    def __init__(self, size: int):
        super().__init__()
        self.embed, self.qkv, self.head = nn.Conv2d(3, size, 4, 4), nn.Linear(size, 3 * size), nn.Linear(size, 4)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).mT.chunk(3, 1)
        return self.head((tokens + ((q @ k.mT).softmax(-1) @ v).mT).mean(1))


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("method", ON_MAPS)
def test_attention_of_channels_is_refused(size, method):
    with pytest.raises((lrptrain.UnsupportedMethodError, lrptrain.UnsupportedModelError)) as error:
        lrptrain.attribute(Channels(size), patches(), 1, method)
    assert f"{method} and" not in str(error.value)


def test_mixed_heads_are_one_map():
    """Talking heads: what weighs the values is the mixture, not the softmax."""
    mixture = torch.tensor([[0.7, 0.3], [0.4, 0.6]], dtype=torch.float64)

    def talking(x: Tensor) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        a = (heads @ heads.mT).softmax(-1)
        a = F.linear(a.permute(0, 2, 3, 1), mixture).permute(0, 3, 1, 2)
        return x + (a @ heads).transpose(1, 2).reshape(len(x), 16, 8)

    def written_out(x: Tensor) -> Tensor:
        heads = x.view(len(x), 16, 2, 4).transpose(1, 2)
        a = (heads @ heads.mT).softmax(-1)
        mixed = torch.stack([m[0] * a[:, 0] + m[1] * a[:, 1] for m in mixture], 1)
        return x + (mixed @ heads).transpose(1, 2).reshape(len(x), 16, 8)

    for method in ("rollout", "generic_attention", "raw_attention"):
        maps = [lrptrain.attribute(Small(Block(f)), patches(), 1, method).scores for f in (talking, written_out)]
        assert relative_error(*maps).max() < 1e-9


# Other tokens


class Latents(nn.Module):
    """Learned tokens, as many as there are patches, attend to the patches and then to one another."""

    def __init__(self, residual: bool):
        super().__init__()
        self.embed, self.key, self.qkv, self.head = (
            nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 16), nn.Linear(8, 24), nn.Linear(8, 4),
        )  # fmt: skip
        self.latents, self.residual = nn.Parameter(torch.zeros(16, 8)), residual
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.key(self.embed(x).flatten(2).transpose(1, 2)).chunk(2, -1)
        attended = F.scaled_dot_product_attention(self.latents.expand(len(x), -1, -1), k, v)
        tokens = self.latents + attended if self.residual else attended
        a, v = probabilities(self.qkv, tokens)
        return self.head((tokens + a @ v).mean(1))


@pytest.mark.parametrize("residual", [True, False])
def test_learned_tokens_are_not_those_of_the_input(residual):
    for method in ("rollout", "generic_attention", "transformer_attribution", "raw_attention"):
        with pytest.raises(lrptrain.UnsupportedMethodError, match="between other tokens than those of the sequence"):
            lrptrain.attribute(Latents(residual), patches(), 1, method)


class Texts(nn.Module):
    """Something before the one block of a text model."""

    def __init__(self, before: Block):
        super().__init__()
        self.words, self.before, self.qkv = nn.Embedding(20, 8), before, nn.Linear(8, 24)
        self.head = nn.Linear(8, 3)
        randomised(self)

    def forward(self, input_ids: Tensor) -> Tensor:
        tokens = self.before(self.words(input_ids))
        a, v = probabilities(self.qkv, tokens)
        return self.head((tokens + a @ v).mean(1))


def test_neighbours_may_be_mixed_before_the_first_block_of_a_text_but_not_the_whole():
    ids = torch.arange(16).view(2, 8)
    trigrams = Texts(Block(lambda x: x + F.pad(x[:, 1:], (0, 0, 0, 1)) + F.pad(x[:, :-1], (0, 0, 1, 0))))
    assert lrptrain.attribute(trigrams, ids, 1, "rollout").scores.isfinite().all()
    with pytest.raises(lrptrain.UnsupportedMethodError, match=r"^cumsum in module 'before'"):
        lrptrain.attribute(Texts(Block(lambda x: x + x.cumsum(1))), ids, 1, "rollout")


def test_origins_stay_on_the_cpu_wherever_the_model_is(monkeypatch):
    """Else Python waits for a GPU once an operation: 348 times in a map of ViT-B."""

    def elsewhere(function):
        def with_other_tensors(*args):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Value, "tensor", property(lambda value: torch.empty(value.shape, device="meta")))
                return function(*args)

        return with_other_tensors

    def follow(origins: TokenProvenance, node: Node) -> None:
        def away(x: Tensor) -> Tensor:
            return x.to("meta") if x.is_floating_point() else x

        args, kwargs = map_nested((node.args, node.kwargs), Tensor, away)
        there(origins, replace(node, args=args, kwargs=kwargs))
        followed.append(node.name)

    followed: list[str] = []
    there = elsewhere(TokenProvenance.follow)
    models = [(Two(Block(each)), patches(3)) for each in APART]
    models += [(KINDS[kind].build(True), KINDS[kind].inputs()) for kind in ("vit", "bert", "modernbert")]
    expected = [lrptrain.attribute(*model, 1, "rollout").scores for model in models]
    monkeypatch.setattr(TokenProvenance, "follow", follow)
    monkeypatch.setattr(attention_layers, "numbered", elsewhere(numbered))
    for model, scores in zip(models, expected, strict=True):
        assert relative_error(lrptrain.attribute(*model, 1, "rollout").scores, scores).max() < 1e-12
    assert {"linear", "add", "layer_norm", "cat"} < set(followed)
