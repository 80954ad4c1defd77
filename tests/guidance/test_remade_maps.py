"""A guided step that makes attention maps again has the gradients of one that keeps them."""

import gc
import weakref
from typing import Any

import pytest
import torch
from hugging_face import small_sizes
from model_zoo import randomised
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from lrptrain import register_rule
from lrptrain.guidance.losses import MapSettings
from lrptrain.guidance.objective import Objective
from lrptrain.relevance.passes.interception import intercepted

BATCH = 3
METHODS = ("generic_attention", "attention_x_gradient", "attention_gradcam", "input_x_gradient", "attnlrp")
Gradients = dict[str, torch.Tensor]


def vit(**options: Any) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    sizes: dict[str, Any] = {
        "img_size": 16,
        "patch_size": 8,
        "embed_dim": 8,
        "depth": 2,
        "num_heads": 2,
        "num_classes": 3,
    }
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 3, 16, 16, dtype=torch.float64, generator=generator)
    return randomised(VisionTransformer(**sizes, **options)), {"x": images}


def bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    ids = torch.arange(1, 1 + BATCH * 6).view(BATCH, 6)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    return randomised(BertForSequenceClassification(BertConfig(vocab_size=40, **small_sizes(8, layers=2, inner=12)))), {
        "input_ids": ids,
        "attention_mask": mask,
    }


def evidence(explained: torch.Tensor) -> torch.Tensor:
    if explained.ndim == 2:
        return (torch.arange(explained.shape[1]) < 2).long().expand_as(explained)
    annotation = torch.zeros(BATCH, *explained.shape[2:], dtype=torch.uint8)
    annotation[:, :8, :8] = 1
    return annotation


def guided(
    model: nn.Module, inputs: dict[str, torch.Tensor], objective: Objective, keeps_maps: bool
) -> tuple[Gradients, int]:
    """The gradients of a guided step, and how many calls of attention kept no map."""
    labels = torch.arange(BATCH) % 2
    torch.manual_seed(0)  # dropout
    with intercepted(model, BATCH, True, keeps_maps=keeps_maps) as calls:
        output = model(**inputs)
    loss = F.cross_entropy(getattr(output, "logits", output), labels)
    assert calls[0].failure is None
    terms = objective.losses(calls[0], evidence(calls[0].explained), labels, torch.arange(BATCH))
    sum((term.total for term in terms.values()), loss).backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    assert calls[0].tape is not None
    kernels = calls[0].tape.kernels
    return gradients, 0 if kernels is None else len(kernels.attentions)


def check_same(mine: Gradients, expected: Gradients) -> None:
    assert mine.keys() == expected.keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        assert (mine[name] - gradient).abs().max() < 1e-11 * largest, name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [vit, bert])
def test_gradients_are_those_of_maps_written_out(make, method):
    model, inputs = make()
    objective = Objective({"energy": 1.0}, MapSettings(method))
    expected, kept = guided(model.eval(), inputs, objective, keeps_maps=True)
    mine, made_again = guided(model, inputs, objective, keeps_maps=False)
    assert (kept, made_again) == (0, 2)
    check_same(mine, expected)


def test_dropped_attention_is_written_out():
    model, inputs = vit(attn_drop_rate=0.5)
    objective = Objective({"energy": 1.0})
    expected, _ = guided(model.train(), inputs, objective, keeps_maps=True)
    mine, made_again = guided(model, inputs, objective, keeps_maps=False)
    assert made_again == 0
    check_same(mine, expected)


def test_maps_are_made_again_unless_rules_go_through_them():
    assert not Objective({"energy": 1.0}).keeps_maps
    assert not Objective({"rrr": 1.0}, MapSettings("transformer_attribution")).keeps_maps
    assert Objective({"energy": 1.0}, MapSettings("transformer_attribution")).keeps_maps
    attnlrp = Objective({"energy": 1.0}, MapSettings("attnlrp"))
    assert not attnlrp.keeps_maps
    assert Objective({"energy": 1.0}, MapSettings("attnlrp", {"form": "explicit"})).keeps_maps
    with register_rule("softmax", lambda *_: []):  # of the user's: nothing is known of what it reads
        assert attnlrp.keeps_maps
        assert not Objective({"energy": 1.0}).keeps_maps


@pytest.mark.parametrize("method", ["generic_attention", "attention_x_gradient", "input_x_gradient", "attnlrp"])
@pytest.mark.parametrize("make", [vit, bert])
def test_the_graph_holds_no_map(make, method):
    model, inputs = make()
    objective = Objective({"energy": 1.0}, MapSettings(method))
    kinds: dict[bool, set[torch.Size]] = {True: set(), False: set()}
    for keeps_maps, kind in kinds.items():
        shapes: list[torch.Size] = []

        def pack(tensor, shapes=shapes):
            shapes.append(tensor.shape)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            guided(model.eval(), inputs, objective, keeps_maps=keeps_maps)
        tokens = next(iter(inputs.values())).shape[1] if make is bert else 5
        kind.update(shape for shape in shapes if shape[-2:] == (tokens, tokens))
    assert kinds[True]
    assert not kinds[False]


@pytest.mark.parametrize("make", [vit, bert])
def test_a_recording_holds_nothing_that_is_made_again(make):
    model, inputs = make()
    with intercepted(model.eval(), BATCH, True, keeps_maps=False) as calls:
        model(**inputs)
    tape = calls[0].tape
    assert tape is not None
    held = [(node, node.outputs[0].held) for node in tape.nodes if node.name == "linear"]
    forgotten = [node for node, tensor in held if tensor is None]
    assert {node.name for node in forgotten} == {"linear"}
    # What the graph reads is held by it: inputs of GELUs, and of the weights behind them.
    assert all(x.held is not None for node in tape.nodes if node.name == "gelu" for x in node.inputs)
    with torch.no_grad():
        whole = torch.cat([node.outputs[0].tensor.flatten() for node in forgotten])
    with intercepted(model, BATCH, True, keeps_maps=True) as others:
        model(**inputs)
    assert others[0].tape is not None
    paths = [(node.name, node.path) for node in forgotten]
    expected = [n.outputs[0].tensor for n in others[0].tape.nodes if (n.name, n.path) in paths]
    torch.testing.assert_close(whole, torch.cat([x.flatten() for x in expected]), rtol=1e-12, atol=1e-13)


def test_what_is_let_go_is_freed():
    model, inputs = vit()
    labels = torch.arange(BATCH) % 2
    with intercepted(model.eval(), BATCH, True, keeps_maps=False) as calls:
        model(**inputs)
    objective = Objective({"energy": 1.0})
    terms = objective.losses(calls[0], evidence(calls[0].explained), labels, torch.arange(BATCH))
    assert calls[0].tape is not None
    values = [weakref.ref(value) for node in calls[0].tape.nodes for value in node.outputs]
    gc.disable()
    try:
        calls[0].let_go()
        assert not any(value() is not None for value in values)
    finally:
        gc.enable()
    assert calls[0].replay is not None
    terms["energy"].total.backward()


def test_a_step_with_learned_queries_is_run_once_and_those_are_written_out():
    model, inputs = vit(global_pool="map", class_token=False)
    objective = Objective({"energy": 1.0}, MapSettings("generic_attention"))
    runs = []
    model.get_submodule("patch_embed").register_forward_hook(lambda *_: runs.append(1))
    expected, _ = guided(model, inputs, objective, keeps_maps=True)
    mine, made_again = guided(model, inputs, objective, keeps_maps=False)
    assert (made_again, len(runs)) == (2, 2)
    check_same(mine, expected)


def test_checkpointed_blocks_keep_their_maps():
    model, inputs = vit()
    assert isinstance(model, VisionTransformer)
    model.set_grad_checkpointing()
    with intercepted(model, BATCH, True, keeps_maps=False) as calls:
        model(**inputs)
    assert calls[0].failure is None
    assert calls[0].tape is not None
    assert calls[0].tape.kernels is None
