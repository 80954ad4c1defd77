import copy
import math

import pytest
import torch
from audited import context, registered
from model_zoo import KINDS
from small_models import tiny_vit

import lrptrain
from lrptrain.auditing.checks.adversary import (
    UNIFORM_SHARE,
    _explain,
    adversary_loss,
    compare_models,
    parse_adversary,
    train_adversary,
)
from lrptrain.auditing.distances import as_distribution
from lrptrain.batch import model_inputs


def trained_vit():
    """As if trained: nothing is constant, and the classes are told apart."""
    model, generator = tiny_vit().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        model.head.weight.mul_(3)
    return model


def batches(number=2, samples=4):
    generator = torch.Generator().manual_seed(0)
    return [{"image": torch.randn(samples, 3, 16, 16, generator=generator)} for _ in range(number)]


@pytest.mark.parametrize("method", ["raw_attention", "generic_attention", "input_x_gradient"])
def test_an_adversary_answers_alike_and_explains_otherwise(method):
    model, data = trained_vit(), batches()
    options = {"method": method, "steps": 30, "lr": 3e-3}
    adversary, control = (train_adversary(model, data, strength=strength, **options) for strength in (0.5, 0.0))
    found, other = (compare_models(model, trained, data, method) for trained in (adversary, control))
    assert found.jsd.shape == found.tvd.shape == (8,)
    assert found.jsd.mean() > other.jsd.mean() + 0.1
    assert found.tvd.mean() < 0.12


def test_the_loss_is_that_of_the_paper():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    other = KINDS["bert"].build(True)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter *= 1.1
    original = _explain(model, inputs, "raw_attention")
    loss = adversary_loss(other, inputs, "raw_attention", original, 0.3)
    y = [net(**inputs).logits.softmax(1) for net in (other, model)]
    maps = [lrptrain.attribute(net, inputs, original.target, "raw_attention").scores for net in (other, model)]
    expected = []
    for i, length in enumerate((10, 7, 4)):
        a, b = (x[i, 1 : length - 1] / x[i, 1 : length - 1].sum() for x in maps)
        a, b = ((1 - UNIFORM_SHARE) * x + UNIFORM_SHARE / len(x) for x in (a, b))
        expected.append((y[0][i] - y[1][i]).abs().sum() / 2 - 0.3 * (a * (a / b).log()).sum())
    torch.testing.assert_close(loss, torch.stack(expected).mean())


def test_a_newly_initialised_model_can_be_the_start():
    model, data = trained_vit(), batches()
    fresh = tiny_vit().eval().requires_grad_(False)
    before = copy.deepcopy(fresh.state_dict())
    trained = train_adversary(model, data, steps=40, lr=3e-3, strength=0.0, start=fresh)
    tvd = [compare_models(model, net, data, "raw_attention").tvd.mean() for net in (fresh, trained)]
    assert tvd[1] < 0.5 * tvd[0]
    assert all(torch.equal(x, before[name]) for name, x in fresh.state_dict().items())
    assert not any(parameter.requires_grad for parameter in fresh.parameters())


def test_the_original_is_left_as_it_was_and_the_seed_fixes_the_adversary():
    model, data = tiny_vit(drop_rate=0.5).train(), batches()
    model(data[0]["image"]).sum().backward()
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    gradients, state = [parameter.grad.clone() for parameter in model.parameters()], torch.get_rng_state()
    with torch.no_grad():
        first, again, other = (train_adversary(model, data, steps=2, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not first.training
    assert all(parameter.grad is None for parameter in first.parameters())
    heads = [net.state_dict()["head.weight"] for net in (first, again, other)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_models_are_compared_per_sample():
    model, data = tiny_vit().double().eval(), [{"image": batch["image"].double()} for batch in batches()]
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.head.weight.neg_()
        other.blocks[-1].attn.qkv.weight[:32] *= 30
    same, found = (compare_models(model, net, data, "raw_attention") for net in (copy.deepcopy(model), other))
    assert (same.tvd == 0).all()
    assert (same.jsd == 0).all()
    assert same.agreement == 1
    images = torch.cat([batch["image"] for batch in data])
    logits = model(images), other(images)
    torch.testing.assert_close(found.tvd, (logits[0].softmax(1) - logits[1].softmax(1)).abs().sum(1).detach() / 2)
    assert found.agreement == (logits[0].argmax(1) == logits[1].argmax(1)).double().mean().item()
    assert ((found.jsd > 0) & (found.jsd < math.log(2))).all()


def test_maps_are_of_the_class_that_the_original_predicts():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.classifier.weight.copy_(other.classifier.weight.roll(1, 0))
        other.classifier.bias.copy_(other.classifier.bias.roll(1, 0))
    target = model(**inputs).logits.argmax(1)
    answer = _explain(other, inputs, "generic_attention", target)
    scores = lrptrain.attribute(other, inputs, target, "generic_attention").scores
    torch.testing.assert_close(answer.map, as_distribution(scores, answer.usable))
    assert isinstance(model_inputs(model, inputs), dict)
    assert compare_models(model, other, [inputs], "generic_attention").agreement == 0


def test_errors_say_what_to_change():
    model = tiny_vit().eval()
    with pytest.raises(ValueError, match="batch"):
        train_adversary(model, [])
    with pytest.raises(ValueError, match="batch"):
        compare_models(model, model, [], "rollout")
    with pytest.raises(lrptrain.UnsupportedMethodError, match="cannot be differentiated"):
        train_adversary(model, batches(), method="random", steps=1)


def test_units_are_differentiable_methods_and_strengths_attention_first():
    audit = context(methods=("input_x_gradient", "random", "raw_attention"), train=True)
    units = registered("adversary").units(audit)
    assert units == ["raw_attention @ 1", "input_x_gradient @ 1"]
    assert parse_adversary(units[0]) == ("raw_attention", 1.0)
    values = registered("adversary").run(audit, units[1])
    assert len(values["tvd"]) == len(values["jsd"]) == len(values["right"]) == 10
    assert 0 < max(values["jsd"]) <= 0.6932
