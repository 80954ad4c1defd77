"""Encoder-decoder classifiers, whose decoder reads the text once more, one token later."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from torch import Tensor

import lrptrain

transformers = pytest.importorskip("transformers")

IDS = torch.tensor([[0, 6, 10, 4, 15, 2], [0, 8, 12, 2, 1, 1]])
INPUTS = {"input_ids": IDS, "attention_mask": (IDS != 1).long()}


def bart(**options: Any) -> Any:
    config = transformers.BartConfig(
        **{"vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
           "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 30,
           "num_labels": 3, "scale_embedding": True, **options},
    )  # fmt: skip
    return randomised(transformers.BartForSequenceClassification(config))


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=2, num_labels=3,
        pad_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return randomised(transformers.T5ForSequenceClassification(config))


@pytest.mark.parametrize("build", [bart, t5])
def test_the_gradient_counts_both_copies_of_the_text(build):
    """It is the gradient of the tokens' rows in the embedding table, which both copies are looked up in."""
    model = build()
    recording = lrptrain.record(model, INPUTS)
    gradient = recording.input_gradient(lambda logits: logits[0, 1])
    logits = model(**INPUTS).logits
    assert relative_error(recording.logits, logits).max() < 1e-12
    (rows,) = torch.autograd.grad(logits[0, 1], model.get_input_embeddings().weight)
    tokens = IDS[0, 1:-1]  # the others are start tokens, too, or of several positions
    assert relative_error(gradient[0, 1:-1], rows[tokens]).max() < 1e-9


def test_a_map_is_the_sum_over_both_copies_of_the_text():
    """Each copy alone, as embeddings that the plain model is given; the second is one token later."""
    model = bart()
    both = lrptrain.attribute(model, INPUTS, 1, "input_x_gradient").scores
    table = model.get_input_embeddings()
    parts: list[Tensor] = []
    for copy in range(2):
        embedded = [table(x).detach() for x in (IDS, torch.cat([torch.full((2, 1), 2), IDS[:, :-1]], 1))]
        leaf = embedded[copy].requires_grad_()
        output = model.model(
            inputs_embeds=embedded[0], attention_mask=INPUTS["attention_mask"], decoder_inputs_embeds=embedded[1]
        )[0]
        ends = torch.stack([output[0, 5], output[1, 3]])
        logits = model.classification_head(ends)
        (gradient,) = torch.autograd.grad(logits[:, 1].sum(), leaf)
        parts.append((gradient * leaf).detach().sum(-1))
    expected = parts[0]
    expected[:, :-1] += parts[1][:, 1:]
    assert relative_error(both, expected * INPUTS["attention_mask"]).max() < 1e-9


def test_another_table_for_the_decoder_is_refused():
    model = bart()
    model.model.decoder.embed_tokens = randomised(type(model.model.shared)(40, 16, 1, 1.0))
    with pytest.raises(lrptrain.UnsupportedOperationError, match="a second time, in another table"):
        lrptrain.attribute(model, INPUTS, 1, "input_x_gradient")
