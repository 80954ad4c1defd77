"""The rows of a model's embedding, whoever names it."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from lrptrain.batch import Sample
from lrptrain.findings import ExplainedSample
from lrptrain.monitor.token_vectors import token_vectors


def text(*ids):
    return ExplainedSample(
        Sample(0, 0, {}), 0, np.array([1.0]), {"label": torch.ones(len(ids))}, None, 1, np.nan, {},
        content_ids=np.array(ids),
    )  # fmt: skip


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Embedding(20, 3)
        self.words = nn.Embedding(20, 5, dtype=torch.bfloat16)

    def get_input_embeddings(self):
        return self.words


def test_the_embedding_that_the_model_names_gives_the_rows_of_content():
    model = Named()
    found = token_vectors(model, [text(-1, 4, 7), text(7, -1)])
    assert sorted(found) == [4, 7]
    assert found[7].dtype == np.float64
    assert found[7].tolist() == model.words.weight[7].tolist()


def test_without_a_name_it_is_the_first_that_has_all_tokens():
    model = nn.ModuleList([nn.Embedding(5, 2), nn.Embedding(9, 3)])
    assert len(token_vectors(model, [text(4)])[4]) == 2
    assert len(token_vectors(model, [text(5)])[5]) == 3
    assert token_vectors(model, [text(9)]) == {}
    assert token_vectors(nn.Linear(2, 2), [text(1)]) == {}


def test_images_and_empty_texts_have_none():
    model = nn.Embedding(5, 2)
    assert token_vectors(model, [text(1), replace(text(1), content_ids=None)]) == {}
    assert token_vectors(model, []) == {}
    assert token_vectors(model, [text(-1)]) == {}
