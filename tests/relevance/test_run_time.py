"""Checkpointing, compilation, wrappers, autocast, training mode."""

from typing import Any

import pytest
import torch
from model_zoo import KINDS
from small_models import Small, patches, same
from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


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
