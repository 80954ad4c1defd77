"""What a tokenizer and a model say of their texts."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hugging_face import small_sizes
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)
from word_pieces import word_pieces

from lrptrain.cues.text_form import Padding, padding_of, text_form

SMALL: dict[str, Any] = {**small_sizes(8), "vocab_size": 200}
NAMED = word_pieces(model_max_length=64, cls_token="[CLS]", sep_token="[SEP]", padding_side="left")


def test_the_models_own_padding_counts_first_and_the_tokenizers_side():
    form = text_form(NAMED, BertModel(BertConfig(**SMALL, max_position_embeddings=30, pad_token_id=7)))
    assert form.padding == Padding(7, on_the_left=True)
    assert form.ends == {2, 3}
    assert form.tokenizer is NAMED
    gpt = GPT2Model(GPT2Config(vocab_size=200, n_embd=8, n_layer=1, n_head=2, n_positions=20))
    assert text_form(NAMED, gpt).padding == Padding(0, on_the_left=True)  # the model has none
    assert text_form(None, gpt).padding == Padding(0, on_the_left=False)


@pytest.mark.parametrize(
    ("model", "tokenizer", "most"),
    [
        (BertModel(BertConfig(**SMALL, max_position_embeddings=30)), NAMED, 30),
        (BertModel(BertConfig(**SMALL, max_position_embeddings=99)), NAMED, 64),
        (BertModel(BertConfig(**SMALL, max_position_embeddings=30)), None, 30),
        # RoBERTa counts from the id of its padding on.
        (RobertaModel(RobertaConfig(**SMALL, max_position_embeddings=30, pad_token_id=1)), NAMED, 28),
        # No positions of its own: what the tokenizer says.
        (T5EncoderModel(T5Config(vocab_size=200, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)), NAMED, 64),
        # Of a network of one's own nobody knows, whatever the tokenizer could do.
        (nn.Embedding(200, 8), NAMED, 0),
        (nn.Embedding(200, 8), None, 0),
        (BertModel(BertConfig(**SMALL, max_position_embeddings=30)), word_pieces(), 30),  # a limit of 10^30 is none
    ],
)
def test_how_long_a_text_may_be(model, tokenizer, most):
    assert text_form(tokenizer, model).most == most
    assert text_form(tokenizer, nn.ModuleDict({"inside": model})).most == most


def test_a_tokenizer_may_say_nothing():
    form = text_form(SimpleNamespace(convert_ids_to_tokens=str), nn.Linear(1, 1))
    assert form.ends == frozenset()
    assert form.padding == Padding(0, on_the_left=False)


def test_the_padding_of_a_batch():
    ids = torch.tensor([[9, 5, 6], [5, 6, 7]])
    assert padding_of({"input_ids": ids, "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}) == Padding(9, True)
    assert padding_of({"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}) == Padding(7, False)
    nothing = torch.tensor([[1, 1, 1], [0, 0, 0]])  # an empty text tells no side
    assert padding_of({"input_ids": ids, "attention_mask": nothing}) == Padding(5, False)
    full = {"input_ids": ids, "attention_mask": torch.ones(2, 3)}
    assert padding_of(full) == Padding(0, False)
    assert padding_of(full, Padding(4, True)) == Padding(4, True)
