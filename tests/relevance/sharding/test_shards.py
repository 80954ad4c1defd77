"""What is a shard, and what is refused."""

import pytest
import torch
from gloo import in_processes
from model_zoo import KINDS
from sharded_work import in_mixed_precision, left_whole, of_transformers
from small_models import Small
from torch import nn

from lrptrain.relevance.sharding.shards import (
    check_shards,
    computes_in_half,
    has_shards,
    is_sharded,
    own_name,
    shards_by_module,
    without_strategy,
)
from lrptrain.relevance.types import UnsupportedModelError


def test_a_plain_model_has_no_shards_and_keeps_its_hooks():
    model = Small()
    assert not is_sharded(model)
    assert own_name(model) == "Small"
    assert not computes_in_half(model)
    hook = model.register_forward_pre_hook(lambda *_: None)
    assert not has_shards(model)
    assert shards_by_module(model) == []
    check_shards(model)
    with without_strategy(model):
        assert list(model._forward_pre_hooks) == [hook.id]


def test_fsdp1_is_refused():
    model = nn.Sequential(type("FullyShardedDataParallel", (nn.Linear,), {})(2, 2))
    with pytest.raises(UnsupportedModelError, match="FSDP1 flattens and shards the parameters of '0': shard"):
        check_shards(model)


def test_zero_3_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    vars(model[0].weight)["ds_id"] = 0  # as DeepSpeed marks what it has partitioned
    with pytest.raises(UnsupportedModelError, match="DeepSpeed ZeRO-3 shards the parameters of '0'"):
        check_shards(model)


@pytest.mark.parametrize("kind", ["expert", "pipeline"])
def test_models_that_lie_in_parts_in_several_processes_are_refused(kind):
    model = nn.Sequential(nn.Linear(2, 2))

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x

    forward.__module__ = f"transformers.distributed.{kind}_parallel"
    model[0].forward = forward
    with pytest.raises(UnsupportedModelError, match="'0' runs in several processes by expert or pipeline parallel"):
        check_shards(model)


def test_what_fsdp_has_gathered_in_half_precision_is_a_shard_again(tmp_path):
    for each in in_processes(in_mixed_precision, 2, tmp_path):
        assert each == {
            "gathered": torch.bfloat16,
            "as before": True,
            "same": True,
            "half": True,
            "name": "VisionTransformer",
        }


def test_a_model_that_fsdp_has_left_whole_is_sharded_nevertheless(tmp_path):
    for each in in_processes(left_whole, 2, tmp_path):
        assert (each["shards"], each["sharded"]) == (False, True)
        assert each["message"].startswith("a map of a sharded model has no graph")


def test_the_sharding_of_transformers_is_taken(tmp_path):
    KINDS["llama"].build(True).float().save_pretrained(tmp_path / "llama")
    for each in in_processes(of_transformers, 2, tmp_path / "run", str(tmp_path / "llama")):
        assert each == {"tensor parallel": [True] * 3, "FSDP2": [True] * 3}
