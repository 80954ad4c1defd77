import pytest
import torch
from model_zoo import KINDS, select
from small_models import tiny_vit

import lrptrain
from lrptrain.auditing.attention import evaluating, replaced_attention
from lrptrain.auditing.distances import as_distribution
from lrptrain.auditing.last_block import last_blocks
from lrptrain.relevance.output.outputs import read_logits

NAMES = ("vit", "vit_mean", "vit_registers", "beit", "torchvision_vit", "hf_vit", "bert", "modernbert_mean", "gpt2")


def prepared(name, fused):
    model, inputs = KINDS[name].build(fused), KINDS[name].inputs()
    with evaluating(model) as model:
        (block,) = last_blocks(model, inputs, 64)
    return model, inputs, block


def answered(model, inputs, attention):
    """By the whole model, with other attention in its last block."""
    last = len(lrptrain.record(model, inputs).blocks) - 1
    with replaced_attention(lambda block, p: attention if block == last else p, 3), torch.no_grad():
        return read_logits(model(inputs) if isinstance(inputs, torch.Tensor) else model(**inputs), 3)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written_out"])
@pytest.mark.parametrize("name", NAMES)
def test_what_follows_the_attention_is_run_as_the_model_runs_it(name, fused):
    model, inputs, block = prepared(name, fused)
    torch.testing.assert_close(block.logits(block.attention), block.recording.logits, rtol=1e-9, atol=1e-12)
    other = block.reweighted(torch.rand(3, block.attention.shape[-1], dtype=torch.float64))
    found = block.logits(other)
    torch.testing.assert_close(found, answered(model, inputs, other), rtol=1e-9, atol=1e-12)
    assert (found - block.recording.logits).abs().max() > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_the_map_is_that_of_raw_attention(name):
    model, inputs, block = prepared(name, True)
    scores = lrptrain.attribute(model, inputs, method="raw_attention").scores
    torch.testing.assert_close(block.map, as_distribution(scores, block.usable), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_content_of_the_row_that_is_read_changes(name):
    _, _, block = prepared(name, True)
    own, content = block.attention, block.content[:, None, None]
    new = block.reweighted(torch.rand(3, own.shape[-1], dtype=torch.float64))
    torch.testing.assert_close(new.sum(-1), own.sum(-1))
    read = (block.recording.pooling > 0)[:, None, :, None]
    assert (new == own).masked_select(~(content & read)).all()
    assert (new == own).masked_select(content & read & (own > 0)).double().mean() < 0.5
    assert (new[own == 0] == 0).all()


def test_the_map_of_spread_weights_is_these_weights():
    _, _, block = prepared("bert", True)
    wanted = as_distribution(torch.rand(3, 10, dtype=torch.float64), block.usable)
    row = block.reweighted(block.in_sequence(wanted))[:, :, 0].mean(1)
    torch.testing.assert_close(as_distribution(row, block.usable), wanted)


def test_a_text_without_content_stays_as_it_is():
    kind = KINDS["bert"]
    model, inputs = kind.build(True), {name: x[:, :2] for name, x in kind.inputs().items()}
    (block,) = last_blocks(model, inputs, 4)
    assert torch.equal(block.reweighted(torch.rand(3, 2)), block.attention)
    assert (block.map == 0).all()


def test_samples_come_in_parts():
    model, images = tiny_vit().eval(), torch.randn(5, 3, 16, 16)
    parts = list(last_blocks(model, images, 2))
    assert [len(part.usable) for part in parts] == [2, 2, 1]
    torch.testing.assert_close(torch.cat([part.recording.logits for part in parts]), model(images))
    inputs = KINDS["bert"].inputs()
    (first, _) = last_blocks(KINDS["bert"].build(True), inputs, 2)
    assert torch.equal(first.usable, first.usable & select(inputs, slice(0, 2))["attention_mask"].bool())
    with pytest.raises(ValueError, match="batch_size"):
        next(last_blocks(model, images, 0))


def test_windows_are_no_attention_that_can_be_tested():
    kind = KINDS["timm_swin"]
    with pytest.raises(lrptrain.UnsupportedMethodError, match="at a time"):
        next(last_blocks(kind.build(True), kind.inputs(), 4))
