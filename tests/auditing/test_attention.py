import pytest
import torch
from model_zoo import KINDS, select
from small_models import tiny_vit
from torch import nn

import lrptrain
from lrptrain.auditing.attention import ReplacedAttention, content_of_map, evaluating, record_replaced
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.recording import explained_input

WITH_ATTENTION = [name for name, kind in KINDS.items() if kind.attention]


def uniform_rows(_, probabilities):
    """Every row uniform over the keys that it attends to at all; its sum stays."""
    allowed = (probabilities > 0).to(probabilities.dtype)
    return allowed * (probabilities.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp(min=1))


def run(model, inputs):
    output = model(inputs) if isinstance(inputs, torch.Tensor) else model(**inputs)
    return read_logits(output, 3).detach()


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written_out"])
@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_the_same_attention_gives_the_same_logits_and_other_attention_reaches_every_block(name, fused):
    model, inputs = KINDS[name].build(fused), KINDS[name].inputs()
    recorded = lrptrain.record(model, inputs).attention
    seen = []

    def watch(block, probabilities):
        seen.append((block, probabilities))
        return probabilities

    with eager(), ReplacedAttention(watch, 3):
        again = run(model, inputs)
    torch.testing.assert_close(again, run(model, inputs), rtol=1e-9, atol=1e-12)
    assert [block for block, _ in seen] == list(range(len(recorded)))
    for (_, found), expected in zip(seen, recorded, strict=True):
        torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-9, atol=1e-12)
    with eager(), ReplacedAttention(uniform_rows, 3):
        assert (run(model, inputs) - again).abs().max() > 1e-6


def test_gradients_pass_through_what_replaces():
    model, images = tiny_vit().double().eval(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    with eager(), ReplacedAttention(lambda _, p: p * scale, 3):
        out = model(images)[:, 0].sum()
    (gradient,) = torch.autograd.grad(out, scale)
    step = 1e-6
    with eager(), ReplacedAttention(lambda _, p: p * (1 + step), 3):
        moved = model(images)[:, 0].sum()
    assert gradient.item() == pytest.approx((moved - out).item() / step, rel=1e-4)


def test_it_works_inside_of_a_recording_and_is_gone_afterwards():
    model, images = tiny_vit().double().eval(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    before = model(images)
    recording = record_replaced(model, images, uniform_rows)
    for attention in recording.attention:
        torch.testing.assert_close(attention, torch.full_like(attention, 1 / 17))
    assert (recording.logits - before).abs().max() > 1e-6
    torch.testing.assert_close(model(images), before, rtol=0, atol=0)


class OtherSoftmax(nn.Module):
    """A softmax over a square matrix that weighs no values."""

    def __init__(self):
        super().__init__()
        self.vit = tiny_vit()

    def forward(self, image):
        tokens = self.vit.forward_features(image)
        gate = (tokens @ tokens.mT).softmax(-1).amax(-1, keepdim=True)
        return self.vit.forward_head(tokens * gate)


def test_what_is_no_attention_is_told():
    with pytest.raises(lrptrain.UnsupportedModelError, match="2 blocks of attention, but 3"):
        record_replaced(OtherSoftmax().eval(), torch.randn(2, 3, 16, 16), uniform_rows)


def test_the_model_is_evaluated_and_left_as_it_was():
    model = tiny_vit().train()
    model.set_grad_checkpointing(True)
    model.norm.eval()
    modes = [module.training for module in model.modules()]
    with evaluating(nn.DataParallel(model)) as inner:
        assert inner is model
        assert not any(module.training for module in model.modules())
        assert not model.grad_checkpointing
    assert [module.training for module in model.modules()] == modes
    assert model.grad_checkpointing


def test_content_is_every_patch_and_a_text_without_its_ends_and_padding():
    assert content_of_map(torch.zeros(2, 3, 8, 8), 4).all()
    inputs = KINDS["bert"].inputs()
    expected = [[1 <= i < length - 1 for i in range(10)] for length in (10, 7, 4)]
    assert content_of_map(inputs, 10).tolist() == expected
    left = {name: x.flip(1) for name, x in inputs.items()}
    assert torch.equal(content_of_map(left, 10), torch.tensor(expected).flip(1))
    alone = select(inputs, slice(0, 1))["input_ids"]
    assert content_of_map(alone, explained_input(alone)[1].shape[1]).sum() == 8
