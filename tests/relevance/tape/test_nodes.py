"""What a tape holds: nothing that can be made again, and nothing once it is gone."""

import gc
from collections.abc import Callable
from weakref import ref

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from small_models import RELEVANCE, Small, patches
from torch import Tensor, nn

import lrptrain
from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.tape import Tape


def tape_of(name: str, differentiable: bool) -> Tape:
    return run_on_tape(KINDS[name].build(True), KINDS[name].inputs(), differentiable)[0]


def values(tape: Tape) -> list[Value]:
    return [value for node in tape.nodes for value in node.outputs]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_made_again_is_what_was_there(name):
    whole, bare = values(tape_of(name, True)), values(tape_of(name, False))
    assert all(value.held is not None for value in whole)
    assert any(value.held is None for value in bare)
    for first, second in zip(whole, bare, strict=True):
        assert second.shape == second.tensor.shape
        torch.testing.assert_close(first.tensor, second.tensor, rtol=1e-12, atol=1e-12)


def test_scores_norms_and_activations_are_not_kept():
    tape = tape_of("vit", False)
    gone = {node.name for node in tape.nodes for value in node.outputs if value.held is None}
    assert gone == {"layer_norm", "gelu", "mul", "matmul"}
    (softmax, *_) = [node for node in tape.nodes if node.name == "softmax"]
    assert softmax.inputs[0].held is None
    assert softmax.outputs[0].held is not None


def test_what_the_model_holds_is_not_made_again():
    kept = []

    class Holds(nn.GELU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept.append(super().forward(x))
            return kept[-1]

    tape, _ = run_on_tape(nn.Sequential(nn.Linear(4, 4), Holds(), nn.Linear(4, 2)), torch.randn(2, 4), False)
    (node,) = [node for node in tape.nodes if node.name == "gelu"]
    assert node.outputs[0].tensor is kept[0]


@pytest.mark.parametrize("differentiable", [False, True])
def test_a_recording_goes_without_the_garbage_collector(differentiable):
    gc.collect()
    gc.disable()
    try:
        tape = ref(tape_of("vit", differentiable))
        assert tape() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("method", ["transformer_attribution", "generic_attention", "attnlrp", "gradcam"])
def test_attribution_leaves_nothing_behind(method):
    def tensors() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    model, inputs = KINDS["vit"].build(True), KINDS["vit"].inputs()
    lrptrain.attribute(model, inputs, method=method)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        lrptrain.attribute(model, inputs, method=method)
        assert tensors() == before
    finally:
        gc.enable()


class PostNorm(nn.Module):
    """An attention block, post-LN; `before` is done to what the attention reads."""

    def __init__(self, before: Callable[[torch.Tensor], torch.Tensor] = lambda x: x):
        super().__init__()
        self.qkv, self.dense, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8, elementwise_affine=False)
        self.before = before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.before(x)).chunk(3, -1)
        x = self.norm(x + nn.functional.scaled_dot_product_attention(q, k, v))
        return x + nn.functional.gelu(self.dense(x))


def both_ways(*blocks: nn.Module, methods: tuple[str, ...] = (*RELEVANCE, "attnlrp", "gradcam")) -> None:
    """A tape without a graph of the weights and one with everything give the same maps."""
    model = randomised(Small(nn.Sequential(*blocks[:-1]), blocks[-1]))
    for method in methods:
        bare = lrptrain.record(model, patches(), differentiable=False).attribute(1, method).scores
        whole = lrptrain.record(model, patches()).attribute(1, method).scores
        assert relative_error(bare, whole).max() < 1e-9, method
        assert bare.any()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_attention_that_reads_detached_states(place):
    blocks = [PostNorm(torch.detach if i == place else nn.Identity()) for i in range(3)]
    if place < 2:
        both_ways(*blocks)
        return
    both_ways(*blocks, methods=(*RELEVANCE, "attnlrp"))
    with pytest.raises(lrptrain.UnsupportedModelError, match="no gradient goes from the logits to where"):
        both_ways(*blocks, methods=("gradcam",))  # at the states that the last attention reads


def test_queries_and_keys_without_a_graph():
    class Detached(PostNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return x + nn.functional.scaled_dot_product_attention(q.detach(), k.detach(), v)

    both_ways(PostNorm(), Detached(), PostNorm())


def test_a_norm_whose_weight_is_overwritten_is_kept():
    scratch = torch.ones(8, dtype=torch.float64)

    class Scaled(nn.Module):
        def __init__(self, power: float):
            super().__init__()
            self.dense, self.power = nn.Linear(8, 8), power

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scratch.copy_(torch.arange(1, 9) ** self.power)
            return x + self.dense(nn.functional.layer_norm(x, (8,), scratch))

    both_ways(Scaled(1.0), Scaled(0.0), Scaled(-1.0), methods=("lrp", "attnlrp"))  # torch refuses the gradients


class Gathering(nn.Module):
    """Adds up rows in float32 amid a model of float64, as some mixtures of experts do."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 6).double()
        self.head = nn.Linear(6, 3).double()
        self.dtype = dtype

    def forward(self, input_ids: Tensor) -> Tensor:
        h = self.table(input_ids).to(self.dtype)
        total = torch.zeros_like(h)
        total.index_add_(1, torch.tensor([2, 0, 0, 1]), h)
        return self.head(torch.relu(total).double().mean(1))


@pytest.mark.parametrize("method", ["attnlrp", "epsilon_lrp", "gamma_lrp", "lrp"])
def test_a_buffer_that_is_written_takes_the_precision_of_the_rule(method):
    ids = torch.tensor([[1, 2, 3, 4], [4, 0, 6, 5]])
    single, double = (
        lrptrain.attribute(Gathering(dtype), ids, 1, method).scores for dtype in (torch.float32, torch.float64)
    )
    # Activations are rounded to float32 once; no sum of four terms amplifies that by more than their cancellation.
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-6)
