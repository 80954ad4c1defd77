import math

import pytest
import torch
from audited import context, registered
from model_zoo import KINDS, select
from small_models import tiny_vit

from lrptrain.auditing.attention import evaluating
from lrptrain.auditing.checks.adversarial import _divergence, adversarial_attention
from lrptrain.auditing.distances import as_distribution, jensen_shannon
from lrptrain.auditing.last_block import last_blocks
from lrptrain.batch.matters import LEAST_EFFECT

IMAGES = torch.randn(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def sharp_vit():
    """Its last block attends sharply, so that a uniform row is far from its own."""
    model = tiny_vit().double().eval()
    with torch.no_grad():
        model.blocks[-1].attn.qkv.weight[:32] *= 40
    return model


def test_a_model_that_ignores_attention_has_an_adversary():
    model = sharp_vit()
    with torch.no_grad():
        model.blocks[-1].attn.proj.weight.zero_()
    found = adversarial_attention(model, IMAGES, copies=3, steps=60, lr=0.2)
    assert (found.change < 1e-9).all()
    assert (found.jsd > 0.68).all()
    assert (found.jsd <= math.log(2)).all()


def test_a_model_that_lives_on_attention_has_none():
    """Its values tell the tokens apart, and the logits are large: a sample's class may stay by chance only."""
    model = sharp_vit()
    with torch.no_grad():
        model.blocks[-1].attn.proj.weight.mul_(50)
        model.head.weight.mul_(1e4)
    found = adversarial_attention(model, IMAGES, copies=2, steps=1)
    lost = found.change > LEAST_EFFECT
    assert lost.any()
    assert torch.equal(found.jsd == 0, lost)


def test_the_search_lowers_the_change_and_the_penalty_matters():
    model = sharp_vit()
    with torch.no_grad():
        model.blocks[-1].attn.proj.weight.mul_(30)
        model.head.weight.mul_(10)
    start, end, free = (
        adversarial_attention(model, IMAGES, copies=2, steps=steps, lr=0.2, penalty=penalty)
        for steps, penalty in ((1, 500.0), (60, 500.0), (60, 0.0))
    )
    assert (end.change < start.change).all()
    assert (end.change <= LEAST_EFFECT).all()
    assert (end.jsd > 0.1).all()
    assert (free.change > end.change).all()


def test_the_reported_attention_is_as_far_as_told():
    """With one copy and one step of no length, the row is the seeded start."""
    model = KINDS["bert"].build(True)
    inputs = KINDS["bert"].inputs()
    found = adversarial_attention(model, inputs, copies=1, steps=1, lr=1e-12, seed=3)
    with evaluating(model):
        (block,) = last_blocks(model, inputs, 8)
    noise = 3 * torch.randn(1, 10, generator=torch.Generator().manual_seed(3)).double()
    row = as_distribution(noise.exp().expand(3, 10), block.usable)
    before = model(**inputs).logits.softmax(1)
    change = (block.logits(block.reweighted(block.in_sequence(row))).softmax(1) - before).abs().mean(1)
    torch.testing.assert_close(found.change, change.detach(), rtol=1e-7, atol=1e-9)
    expected = torch.where(change <= LEAST_EFFECT, jensen_shannon(block.map, row), 0)
    torch.testing.assert_close(found.jsd, expected.detach(), rtol=1e-7, atol=1e-9)


def test_copies_are_to_differ_from_the_model_and_from_each_other():
    own = torch.tensor([[0.5, 0.5, 0.0]])
    rows = torch.tensor([[[0.5, 0.5, 0.0]], [[0.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]])
    torch.testing.assert_close(_divergence(own, rows), torch.tensor([[1.0], [1.5], [1.5]]) * math.log(2))


@pytest.mark.parametrize("name", ["vit_mean", "bert", "gpt2"])
def test_a_batch_equals_singles(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    together = adversarial_attention(model, inputs, copies=2, steps=4, lr=0.1, batch_size=2)
    alone = [adversarial_attention(model, select(inputs, slice(i, i + 1)), copies=2, steps=4, lr=0.1) for i in range(3)]
    torch.testing.assert_close(together.jsd, torch.cat([one.jsd for one in alone]), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(together.change, torch.cat([one.change for one in alone]), rtol=1e-6, atol=1e-9)


def test_the_model_and_the_random_state_are_as_before():
    model = tiny_vit().train()
    before, state = {name: x.clone() for name, x in model.state_dict().items()}, torch.get_rng_state()
    with torch.no_grad():
        adversarial_attention(model, IMAGES.float(), copies=1, steps=2)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_there_must_be_copies_and_steps():
    with pytest.raises(ValueError, match="copies"):
        adversarial_attention(tiny_vit(), IMAGES.float(), copies=0)


def test_a_unit_is_of_all_batches():
    audit = context("bert")
    values = registered("adversarial").run(audit, "")
    expected = adversarial_attention(audit.model, audit.batches[1].inputs, copies=2, steps=4)
    torch.testing.assert_close(torch.tensor(values["jsd"][6:]).double(), expected.jsd.double(), atol=1e-5, rtol=0)
    assert len(values["change"]) == 10
