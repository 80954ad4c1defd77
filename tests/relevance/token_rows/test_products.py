"""Over one sequence, a row that goes through the tape is what the product of the matrices gives."""

from typing import Any

import pytest
import torch
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import lrptrain
from lrptrain.relevance.methods import attention, lrp
from lrptrain.relevance.methods.stages import Stages
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.types import UnsupportedMethodError
from tests.relevance.model_zoo import randomised

VIT: dict[str, Any] = {
    "img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5,
}  # fmt: skip
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("rollout", {}),
    ("rollout", {"start_layer": 1}),
    ("generic_attention", {}),
    ("generic_attention", {"start_layer": -1}),
    ("transformer_attribution", {}),
    ("raw_attention", {}),
    ("attention_x_gradient", {"block": 1}),
    ("partial_lrp", {}),
]


def image_model(**options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    return randomised(VisionTransformer(**VIT, **options)), torch.randn(2, 3, 32, 32, dtype=torch.float64)


def text_model() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 50, "num_labels": 3}
    config = BertConfig(num_hidden_layers=3, num_attention_heads=2, **sizes)
    mask = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    ids = torch.randint(1, 50, (2, 9))
    return randomised(BertForSequenceClassification(config)), {"input_ids": ids, "attention_mask": mask}


MODELS = {
    "class token": image_model,
    "mean of all tokens": lambda: image_model(class_token=False, global_pool="avg"),
    "attention beside feed-forward": lambda: image_model(block_fn=ParallelScalingBlock),
    "text": text_model,
}


def read_as_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    def stages(recording: Recording, block: int, argument: str = "start_layer") -> Stages:
        return Stages(recording, UnsupportedMethodError("one of stages"))

    monkeypatch.setattr(attention, "layers_or_stages", stages)
    monkeypatch.setattr(lrp, "layers_or_stages", stages)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("method", "options"), METHODS, ids=[f"{name} {options}" for name, options in METHODS])
def test_a_row_through_the_tape_is_the_row_of_the_product(
    model: str, method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, inputs = MODELS[model]()
    product = lrptrain.attribute(network, inputs, target=1, method=method, **options).scores
    read_as_stages(monkeypatch)
    row = lrptrain.attribute(network, inputs, target=1, method=method, **options).scores
    # The same sums and products of up to 200 positive numbers each in another order, block after block.
    assert (row - product).abs().max() <= 1e-12 * product.abs().max()


def test_guided_maps_have_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = image_model()
    weight = network.blocks[1].attn.qkv.weight  # type: ignore[union-attr, index]

    def gradient() -> torch.Tensor:
        maps = lrptrain.attribute(network, inputs, target=1, method="generic_attention", create_graph=True)
        (slope,) = torch.autograd.grad((maps.scores[:, :5] ** 2).sum(), weight)
        return slope

    of_product = gradient()
    read_as_stages(monkeypatch)
    of_row = gradient()
    assert of_product.abs().max() > 0
    assert (of_row - of_product).abs().max() <= 1e-11 * of_product.abs().max()
