"""Checkpointing, compilation, wrappers, autocast, training mode."""

from typing import Any

import pytest
import torch
from model_zoo import KINDS
from small_models import Small, patches, raises, same
from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

import lrptrain


def test_checkpointing_in_timm():
    kind = KINDS["vit"]
    checkpointed: Any = kind.build(True).train()
    checkpointed.set_grad_checkpointing(True)
    same(checkpointed, kind.build(True), kind.inputs())


@pytest.mark.parametrize("name", ["bert", "hf_vit"])
def test_checkpointing_in_hugging_face(name):
    kind = KINDS[name]
    checkpointed: Any = kind.build(True)
    for module in checkpointed.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for attribute in ("dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    checkpointed.activation_checkpointing_enable()
    same(checkpointed.train(), kind.build(True), kind.inputs())


def test_reentrant_checkpointing_raises():
    from torch.utils.checkpoint import checkpoint

    raises(lambda x: checkpoint(torch.relu, x, use_reentrant=True), "CheckpointFunctionBackward")


def test_compiled_models_are_those_they_were_compiled_from():
    kind = KINDS["vit"]
    plain, compiled = kind.build(True), kind.build(True)
    parts: Any = kind.build(True)
    compiled.compile(backend="aot_eager")
    parts.blocks[1] = torch.compile(parts.blocks[1], backend="aot_eager")
    for model in (torch.compile(plain, backend="aot_eager"), compiled, parts):
        same(model, plain, kind.inputs())


def test_wrapped_models_are_unwrapped():
    same(DataParallel(Small()), Small(), patches())
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        same(DistributedDataParallel(Small()), Small(), patches())
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_maps_are_those_of_float32_under_autocast(name, dtype):
    kind = KINDS[name]
    model, inputs = kind.build(True).float(), kind.inputs(dtype=torch.float32)
    exact = lrptrain.attribute(model, inputs, 1)
    with torch.autocast("cpu", dtype):
        low = lrptrain.attribute(model, inputs, 1)
    assert low.scores.dtype == torch.float32
    assert torch.equal(low.logits, exact.logits)
    # LRP amplifies rounding: recorded in bfloat16, some maps of the random ViT moved by more than half.
    assert torch.equal(low.scores, exact.scores)


def test_dropout_in_training_mode():
    model = Small(nn.Dropout(0.5)).train()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with pytest.warns(lrptrain.RelevanceWarning, match=r"train mode: its Dropout 'between'.*call model.eval\(\)"):
        first = lrptrain.attribute(model, patches(), 1)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.scores, lrptrain.attribute(model, patches(), 1).scores)
    assert not torch.equal(first.scores, lrptrain.attribute(model.eval(), patches(), 1).scores)
