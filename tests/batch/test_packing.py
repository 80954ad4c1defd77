"""Packed texts are refused by name, in the monitor and in guidance."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithFlattening

import lrptrain
from lrptrain.batch import read_batch

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def packed() -> dict[str, torch.Tensor]:
    texts = [{"input_ids": [*range(5, 5 + length)], "labels": [1] * length} for length in (4, 6)]
    return DataCollatorWithFlattening(return_tensors="pt")(texts)


def test_positions_that_start_anew_tell_packed_texts():
    with pytest.raises(ValueError, match="'position_ids' start anew within a sample"):
        read_batch({**packed(), "labels": torch.tensor([1])})


@pytest.mark.parametrize("name", ["cu_seq_lens_q", "seq_idx"])
def test_bounds_of_texts_are_named(name):
    batch = {"input_ids": torch.ones(1, 8, dtype=torch.long), name: torch.tensor([0, 3, 8])}
    with pytest.raises(ValueError, match=f"'{name}' says that a sample holds several packed texts: make each"):
        read_batch(batch)


@pytest.mark.parametrize("positions", [[0, 1, 2, 3, 0, 0], [0, 0, 0, 1, 2, 3], [2, 3, 4, 5, 1, 1], [0, 1, 2, 3, 4, 5]])
def test_padding_on_either_side_is_no_packing(positions):
    batch = {"input_ids": torch.ones(1, 6, dtype=torch.long), "position_ids": torch.tensor([positions])}
    assert "argument:position_ids" in read_batch(batch)


def test_monitor_and_guidance_refuse_them_before_the_first_step(tmp_path):
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **SIZES))
    batch = {**packed(), "labels": torch.tensor([1])}
    with pytest.raises(ValueError, match="several packed texts"):
        lrptrain.Monitor(model, [batch], tmp_path)
    guidance = lrptrain.Guidance("swap", swap="length", optimizer=torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(ValueError, match="several packed texts"), guidance.step(model, batch) as step:
        step.guided(nn.functional.cross_entropy(model(batch["input_ids"]).logits, batch["labels"]))
