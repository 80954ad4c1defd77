from itertools import permutations

import pytest
import torch
from audited import QUICK, context, registered
from model_zoo import KINDS, select
from small_models import tiny_vit

from lrptrain.auditing.attention import evaluating
from lrptrain.auditing.checks.permutation import permuted_attention, shuffled_places
from lrptrain.auditing.last_block import last_blocks


def test_places_are_shuffled_evenly_among_the_content_tokens():
    content = torch.tensor([[False, True, True, True, False], [True, False, False, False, False]])
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([shuffled_places(content, torch.rand(5, generator=generator)) for _ in range(3000)])
    assert (orders[:, 1] == torch.arange(5)).all()
    assert (orders[:, 0, [0, 4]] == torch.tensor([0, 4])).all()
    found, counts = orders[:, 0].unique(dim=0, return_counts=True)
    assert sorted(found[:, 1:4].tolist()) == sorted(map(list, permutations((1, 2, 3))))
    assert (counts / 3000 - 1 / 6).abs().max() < 0.03


def test_the_median_is_that_of_shuffles_by_hand():
    model, images = tiny_vit().double().eval(), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    found = permuted_attention(model, images, shuffles=3, seed=5)
    with evaluating(model):
        (block,) = last_blocks(model, images, 4)
    generator, distances = torch.Generator().manual_seed(5), []
    before = model(images).softmax(1)
    for _ in range(3):
        order = 1 + torch.rand(17, generator=generator, dtype=torch.float64)[1:].argsort()
        attention = block.attention.clone()
        attention[:, :, 0, 1:] = attention[:, :, 0, order]
        distances.append((block.logits(attention).softmax(1) - before).abs().sum(1) / 2)
    torch.testing.assert_close(found.median_tvd, torch.stack(distances).median(0).values)
    torch.testing.assert_close(found.largest_weight, block.map.max(1).values)


@pytest.mark.parametrize("name", ["vit_mean", "bert", "llama"])
def test_a_batch_equals_singles(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    together = permuted_attention(model, inputs, shuffles=5, batch_size=2)
    alone = [permuted_attention(model, select(inputs, slice(i, i + 1)), shuffles=5) for i in range(3)]
    for field in ("median_tvd", "largest_weight"):
        expected = torch.cat([getattr(one, field) for one in alone])
        torch.testing.assert_close(getattr(together, field), expected, rtol=1e-9, atol=1e-12)
    assert (together.median_tvd[:2] > 0).all()


def test_uniform_attention_cannot_be_shuffled():
    """Keys of zero make every row uniform."""
    model = tiny_vit().double().eval()
    with torch.no_grad():
        model.blocks[-1].attn.qkv.weight[16:32] = 0
        model.blocks[-1].attn.qkv.bias[16:32] = 0
    found = permuted_attention(model, torch.randn(2, 3, 16, 16, dtype=torch.float64), shuffles=4)
    assert (found.median_tvd < 1e-12).all()
    torch.testing.assert_close(found.largest_weight, torch.full((2,), 1 / 16, dtype=torch.float64))


def test_the_model_and_the_random_state_are_as_before():
    model = tiny_vit(attn_drop_rate=0.5, drop_rate=0.5).train()
    images, before, state = torch.randn(2, 3, 16, 16), dict(model.state_dict()), torch.get_rng_state()
    first, again = (permuted_attention(model, images, shuffles=2) for _ in range(2))
    assert torch.equal(first.median_tvd, again.median_tvd)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_there_must_be_a_shuffle():
    with pytest.raises(ValueError, match="shuffles"):
        permuted_attention(tiny_vit(), torch.randn(1, 3, 16, 16), shuffles=0)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_does_not_depend_on_the_batches(name):
    audit = context(name)
    values = registered("permutation").run(audit, "")
    alone = permuted_attention(audit.model, audit.batches[1].inputs, QUICK.shuffles, 0)
    measured = torch.tensor(values["median_tvd"][6:]).double()
    torch.testing.assert_close(measured, alone.median_tvd.double(), atol=1e-5, rtol=0)
