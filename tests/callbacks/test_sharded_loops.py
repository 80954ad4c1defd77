"""The monitor in a loop of the user's own, or a `transformers` Trainer, with a sharded model."""

import copy
from typing import Any

import pytest
import torch
from gloo import in_processes
from sharded_loops import loop, refused, trainer, trainers, watched_and_plain
from sharded_runs import trained_net
from test_processes import assert_close
from test_sharded import assert_same_record, costless, take_proofs


@pytest.fixture(scope="module")
def state():
    return trained_net().state_dict()


@pytest.fixture(scope="module")
def alone(tmp_path_factory, state):
    """The folder and what is found of the same loop in one process."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, loop(folder, state)


@pytest.mark.parametrize("how", ["FSDP2", "TP"])
def test_a_loop_with_a_sharded_model_is_monitored_as_with_the_whole_one(tmp_path, state, alone, how):
    folder, found = alone
    expected = copy.deepcopy(found)
    assert any(take_proofs(expected["findings"]))
    assert expected["findings"]
    processes = in_processes(watched_and_plain, 2, tmp_path / "run", tmp_path, state, how)
    for rank, each in enumerate(processes):
        watched = each["watched"]
        assert watched["failures"] == 0
        assert any(take_proofs(watched["findings"])) == (rank == 0)
        for key in ("ids", "findings", "scalars"):
            assert_close(costless(expected[key]), costless(watched[key]), 1e-9, key)
        for mine, whole in zip(watched["maps"], expected["maps"], strict=True):
            torch.testing.assert_close(mine, whole, rtol=0, atol=1e-8 * float(whole.abs().max()))
        plain = each["plain"]
        assert watched["random"] == plain["random"]
        assert watched["state"].keys() == plain["state"].keys()
        assert all(torch.equal(x, plain["state"][name]) for name, x in watched["state"].items())
        assert any(not torch.equal(x.double(), plain["state"][name]) for name, x in state.items())
    # Under tensor parallel, too, each sample is explained once.
    assert sum(each["watched"]["mine"] for each in processes) == 10
    assert all(each["watched"]["mine"] > 1 for each in processes)
    assert_same_record(folder / "relevance" / "run", tmp_path / "relevance" / "run", 1e-9, "Net")


def test_what_cannot_work_is_one_line_before_the_first_step(tmp_path, state):
    for rank, each in enumerate(in_processes(refused, 2, tmp_path / "run", tmp_path, state)):
        assert each["heads"].startswith("ValueError: Net with whole weights, of which maps are made, does not answer")
        assert each["stream"].startswith("ValueError: Monitor needs a DataLoader or a Dataset of a sharded model's")
        assert "label 7" in each["odd"] or "(process 1)" in each["odd"], (rank, each["odd"])


def test_a_trainer_with_a_model_that_transformers_has_sharded_is_monitored_as_with_the_whole_one(tmp_path):
    """FSDP2 alone: with tensor parallel, accelerate refuses processes on the CPU."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 50,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_labels": 2,
    }
    config = LlamaConfig(**sizes, num_attention_heads=2, pad_token_id=0)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "weights")
    expected = trainer(tmp_path, tmp_path / "weights")
    assert expected["kind"] == "Parameter"
    for each in in_processes(trainers, 2, tmp_path / "run", tmp_path, tmp_path / "weights"):
        watched = each["watched"]
        assert watched["kind"] == "DTensor"
        assert watched["failures"] == 0
        # A Llama casts to float32 itself, where the whole model's plan and the tape of the sharded one round otherwise.
        for key in ("ids", "scalars"):
            assert_close(costless(expected[key]), costless(watched[key]), 1e-7, key)
        for mine, whole in zip(watched["maps"], expected["maps"], strict=True):
            # Each batch is padded to its longest text, and processes have other batches.
            length = min(len(mine), len(whole))
            assert not mine[length:].any()
            assert not whole[length:].any()
            torch.testing.assert_close(mine[:length], whole[:length], rtol=0, atol=1e-6 * float(whole.abs().max()))
        assert all(torch.equal(x, each["plain"]["state"][name]) for name, x in watched["state"].items())
