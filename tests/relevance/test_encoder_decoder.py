"""Encoder-decoder classifiers, whose decoder reads the text once more, one token later."""

from typing import Any

import pytest
import torch
import transformers
from golden_cases import relative_error
from model_zoo import randomised
from torch import Tensor

import lrptrain

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
    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2}
    tokens = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.T5Config.from_dict({**sizes, **tokens, "num_heads": 2, "num_labels": 3})
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


@pytest.mark.parametrize("tables", [1, 2])
def test_a_map_is_the_sum_over_both_copies_of_the_text(tables):
    """Each copy alone, as embeddings that the plain model is given; the second is one token later."""
    model = bart()
    if tables == 2:  # the decoder looks words up in a table of its own, as T5Gemma's does
        model.model.decoder.embed_tokens = randomised(type(model.model.shared)(40, 16, 1, 4.0))
    both = lrptrain.attribute(model, INPUTS, 1, "input_x_gradient").scores
    looked_up = (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens)
    parts: list[Tensor] = []
    for copy in range(2):
        texts = (IDS, torch.cat([torch.full((2, 1), 2), IDS[:, :-1]], 1))
        embedded = [table(x).detach() for table, x in zip(looked_up, texts, strict=True)]
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


# Two streams of tokens


def normalized(relevancy: Tensor) -> Tensor:
    """Equations 8 and 9 of Chefer, Gur and Wolf (ICCV 2021)."""
    unit = torch.eye(len(relevancy), dtype=relevancy.dtype)
    gathered = relevancy - unit
    total = gathered.sum(-1, keepdim=True)
    return torch.where(total > 0, gathered / total, 0.0) + unit


def by_hand(model: Any, ids: Tensor, target: int, read: int) -> dict[str, Tensor]:
    """Generic attention and rollout of one text from the attention that the plain model returns."""
    model.set_attn_implementation("eager")
    output = model(input_ids=ids[None], output_attentions=True)
    kinds = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
    gradients = torch.autograd.grad(output.logits[0, target], [a for kind in kinds for a in kind])
    slopes = iter(gradients)
    own, decoder, cross = (
        [((a * next(slopes)).clamp(min=0)[0].mean(0).detach(), a[0].mean(0).detach()) for a in kind] for kind in kinds
    )
    unit = torch.eye(len(ids), dtype=torch.float64)
    ee = dd = unit
    de = torch.zeros_like(unit)
    both = torch.eye(2 * len(ids), dtype=torch.float64)  # rollout over encoder's and decoder's tokens together
    size = len(ids)

    def rolled(rows: slice, columns: slice, attention: Tensor) -> Tensor:
        step = torch.eye(2 * size, dtype=torch.float64)
        step[rows, columns] += attention
        return step / step.sum(-1, keepdim=True) @ both

    encoder, later = slice(0, size), slice(size, 2 * size)
    for weighted, attention in own:
        ee = ee + weighted @ ee
        both = rolled(encoder, encoder, attention)
    for (weighted, attention), (crossing, crossed) in zip(decoder, cross, strict=True):
        de = de + weighted @ de
        dd = dd + weighted @ dd
        de = de + normalized(dd).T @ crossing @ normalized(ee)
        both = rolled(later, later, attention)
        both = rolled(later, encoder, crossed)
    scores = {"generic_attention": de[read], "rollout": both[size + read, :size]}
    copies = {"generic_attention": (dd - unit)[read], "rollout": both[size + read, size:]}
    for name, copy in copies.items():
        scores[name] = scores[name].clone()
        scores[name][:-1] += copy[1:]  # the decoder's token i + 1 is the text's token i
    return scores


@pytest.mark.parametrize("build", [bart, t5])
@pytest.mark.parametrize("method", ["generic_attention", "rollout"])
def test_two_streams_follow_the_published_rules(build, method):
    model = build()
    found = lrptrain.attribute(model, INPUTS, 1, method).scores
    for row, (ids, length) in enumerate(zip(IDS, (6, 4), strict=True)):
        expected = by_hand(build(), ids[:length], 1, length - 1)[method]
        assert relative_error(found[row : row + 1, :length], expected[None]).max() < 1e-9
        assert (found[row, length:] == 0).all()


@pytest.mark.parametrize(
    "method", ["generic_attention", "transformer_attribution", "attention_x_gradient", "partial_lrp"]
)
def test_the_end_token_does_not_take_all(method):
    for build in (bart, t5):
        scores = lrptrain.attribute(build(), INPUTS, 1, method).scores.abs()[0]
        assert scores[-1] < 0.5 * scores.sum()


@pytest.mark.parametrize("method", ["gradcam", "attention_flow", "attention_norm"])
def test_methods_of_one_stream_refuse_two(method):
    with pytest.raises(lrptrain.UnsupportedMethodError, match="generic_attention"):
        lrptrain.attribute(bart(), INPUTS, 1, method)


def test_one_encoder_block_beside_a_decoder():
    model = bart(encoder_layers=1, decoder_layers=1)
    found = lrptrain.attribute(model, INPUTS, 1, "generic_attention").scores
    expected = by_hand(bart(encoder_layers=1, decoder_layers=1), IDS[0], 1, 5)["generic_attention"]
    assert relative_error(found[:1], expected[None]).max() < 1e-9
