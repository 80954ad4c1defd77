"""A guided step that makes attention maps again has the gradients of one that keeps them."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from model_zoo import randomised
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from lrptrain.guidance.objective import Objective
from lrptrain.relevance.interception import intercepted
from lrptrain.relevance.tape import tape as tape_module

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
    sizes: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
    }
    ids = torch.arange(1, 1 + BATCH * 6).view(BATCH, 6)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    return randomised(BertForSequenceClassification(BertConfig(vocab_size=40, **sizes))), {
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


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [vit, bert])
def test_gradients_are_those_of_operations_and_maps_written_out(make, method, first_order):
    model, inputs = make()
    objective = Objective({"energy": 1.0}, method, first_order=first_order)
    with patch.object(tape_module, "twice_differentiable", lambda name, function, *_: function):
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


def test_methods_without_rules_make_maps_again():
    assert not Objective({"energy": 1.0}).keeps_maps
    assert not Objective({"rrr": 1.0}, "transformer_attribution").keeps_maps
    assert Objective({"energy": 1.0}, "transformer_attribution").keeps_maps


def test_a_step_with_learned_queries_is_run_once_and_those_are_written_out():
    model, inputs = vit(global_pool="map", class_token=False)
    objective = Objective({"energy": 1.0})
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
