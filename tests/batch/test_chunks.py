"""Texts in chunks: read as one text, given to the model in chunks."""

from typing import Any

import torch
from torch import nn

from lrptrain.batch import Sample, collate, model_inputs, read_batch
from lrptrain.batch.call import CHUNK
from lrptrain.batch.chunks import chunk_width, flattened
from lrptrain.batch.content import content_tokens


def given(batch: dict[str, Any]) -> dict[str, Any]:
    """What the model is given of a batch."""
    inputs = model_inputs(OfChunks(), batch)
    assert isinstance(inputs, dict)
    return inputs


class OfChunks(nn.Module):
    def forward(self, input_ids, attention_mask=None):
        return input_ids.float().mean((1, 2))[:, None]


def batch() -> dict[str, torch.Tensor]:
    ids = torch.arange(24).view(2, 3, 4)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "rationale": ids % 2, "label": torch.ones(2)}


def test_chunks_stand_one_behind_the_other():
    flat = read_batch(batch())
    assert flat["input_ids"].tolist() == [[*range(12)], [*range(12, 24)]]
    assert flat["rationale"].shape == flat["attention_mask"].shape == (2, 12)
    assert chunk_width(flat) == 4
    assert flattened(flat).keys() == flat.keys()


def test_texts_in_one_piece_and_embeddings_stay_as_they_are():
    for ids in (torch.ones(2, 4, dtype=torch.long), torch.rand(2, 4, 3)):
        assert CHUNK not in flattened({"input_ids": ids})


def test_the_model_is_given_chunks():
    inputs = given(read_batch(batch()))
    assert torch.equal(inputs["input_ids"], batch()["input_ids"])
    assert inputs["attention_mask"].shape == (2, 3, 4)


def test_documents_of_different_numbers_of_chunks_are_filled_up_with_empty_ones():
    samples = [
        Sample(0, 0, {name: torch.ones(4 * chunks, dtype=torch.long) for name in ("input_ids", "attention_mask")})
        for chunks in (1, 3)
    ]
    for sample in samples:
        sample.tensors[CHUNK] = torch.tensor(4)
    inputs = given(collate(samples))
    assert inputs["attention_mask"].sum(2).tolist() == [[4, 0, 0], [4, 4, 4]]


def test_each_chunk_has_special_tokens_at_its_ends():
    ids = torch.ones(1, 8, dtype=torch.long)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1, 0]])
    content = content_tokens({"input_ids": ids, "attention_mask": mask, CHUNK: torch.tensor([4])})
    assert content.tolist() == [[False, True, True, False, False, True, False, False]]
