"""Fine-tuned adapters: a map of the adapted model is that of the model into which the adapter is merged."""

import copy
from typing import Any

import peft
import pytest
import torch
from model_zoo import randomised
from small_models import Small, patches
from torch import nn

import lrptrain

ADAPTERS: dict[str, Any] = {
    "LoRA": peft.LoraConfig(r=2, target_modules=["qkv", "out"]),
    "DoRA": peft.LoraConfig(r=2, target_modules=["qkv", "out"], use_dora=True),
    "LoHa": peft.LoHaConfig(r=2, target_modules=["qkv", "out"]),
    "OFT": peft.OFTConfig(oft_block_size=4, target_modules=["qkv", "out"]),
}


def adapted(name: str) -> nn.Module:
    return randomised(peft.get_peft_model(Small(), copy.deepcopy(ADAPTERS[name])))


@pytest.mark.parametrize("method", ["attnlrp", "input_x_gradient"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_map_of_an_adapter_is_that_of_the_merged_model(name, method):
    model = adapted(name)
    copied: Any = copy.deepcopy(model)
    merged = copied.merge_and_unload()
    first, second, expected = (lrptrain.attribute(m, patches(), 1, method) for m in (model, model, merged))
    assert torch.equal(first.scores, second.scores)
    torch.testing.assert_close(first.scores, expected.scores, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(first.logits, expected.logits, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["transformer_attribution", "generic_attention", "gamma_lrp"])
@pytest.mark.parametrize("name", ["LoRA", "DoRA", "LoHa"])
def test_other_methods_take_adapters_as_layers_of_their_own(name, method):
    whole = lrptrain.attribute(adapted(name), patches(), 1, method).scores
    alone = lrptrain.attribute(adapted(name), patches()[1:2], 1, method).scores
    assert whole.isfinite().all()
    torch.testing.assert_close(whole[1:2], alone, rtol=1e-9, atol=1e-12)
