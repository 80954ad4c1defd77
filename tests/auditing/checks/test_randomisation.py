import copy
import random
from typing import Any

import pytest
import timm
import torch
import transformers
from audited import context, registered
from hugging_face import small_sizes
from torch import nn

from lrptrain.auditing import randomisation_check
from lrptrain.auditing.checks.randomisation import _from_the_logits_down, _run_order, _split_evenly
from lrptrain.auditing.score import summarize

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def vit():
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 3, "num_heads": 4}
    net = timm.create_model("vit_tiny_patch16_224", num_classes=4, **sizes).eval()
    for parameter in net.parameters():  # as if trained: nothing is constant
        parameter.data += 0.1 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("method", ["random", "raw_attention", "transformer_attribution", "input_x_gradient"])
def test_only_a_map_that_ignores_the_weights_stays(vit, method):
    check = randomisation_check(vit, IMAGES, method=method, stages=4)
    assert check.correlation.shape == check.absolute.shape == (4, 6)
    means = check.means()
    if method == "random":
        torch.testing.assert_close(check.correlation, torch.ones(4, 6))
        torch.testing.assert_close(check.absolute, torch.ones(4, 6))
    else:
        assert means["value"][-1] < 0.5
        assert means["low"][-1] < means["value"][-1] < means["high"][-1]
    torch.testing.assert_close(means["value"], check.correlation.mean(1))


def test_attention_of_intact_blocks_is_blind_to_the_weights_above(vit):
    """Raw attention of the last block does not see the head: the first stage, which takes the head alone, leaves it."""
    check = randomisation_check(vit, IMAGES, method="raw_attention", stages=1000)
    assert check.stages[0] == "head"
    torch.testing.assert_close(check.correlation[0], torch.ones(6))
    assert check.stages[-1] == "(model)"  # position embedding and class token belong to the whole
    assert check.correlation[-1].mean() < 0.5


def test_model_and_random_state_are_as_before(vit):
    before = copy.deepcopy(vit.state_dict())
    states = torch.get_rng_state(), random.getstate()
    hooks = [len(module._forward_pre_hooks) for module in vit.modules()]
    randomisation_check(vit, IMAGES, target=1, stages=3, method="generic_attention")
    assert all(torch.equal(value, before[name]) for name, value in vit.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert [len(module._forward_pre_hooks) for module in vit.modules()] == hooks
    assert all(parameter.grad is None for parameter in vit.parameters())


def test_the_seed_fixes_the_weights_and_the_target_stays(vit):
    options: dict[str, Any] = {"method": "generic_attention", "stages": 2}
    first, again, other = (randomisation_check(vit, IMAGES, target=2, seed=seed, **options) for seed in (0, 0, 1))
    assert torch.equal(first.correlation, again.correlation)
    assert not torch.equal(first.correlation, other.correlation)
    assert first.target.tolist() == [2] * 6
    assert torch.equal(randomisation_check(vit, IMAGES, **options).target, vit(IMAGES).argmax(1))


def test_more_stages_end_at_the_same_weights(vit):
    few, many = (randomisation_check(vit, IMAGES, method="rollout", stages=stages) for stages in (1, 6))
    assert torch.equal(few.correlation[-1], many.correlation[-1])


def test_a_batch_equals_singles(vit):
    together = randomisation_check(vit.double(), IMAGES.double(), target=0, method="generic_attention", stages=2)
    alone = [
        randomisation_check(vit, image[None].double(), target=0, method="generic_attention", stages=2).correlation
        for image in IMAGES
    ]
    vit.float()
    torch.testing.assert_close(together.correlation, torch.cat(alone, 1), atol=1e-9, rtol=0)


def test_padding_of_texts_takes_no_part():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=30, **small_sizes(16, layers=2))
    net = transformers.BertForSequenceClassification(config).double().eval()
    ids = torch.randint(1, 30, (2, 8))
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    options: dict[str, Any] = {"method": "input_x_gradient", "target": 0, "stages": 2}
    found = randomisation_check(net, {"input_ids": ids, "attention_mask": mask}, **options)
    short = {"input_ids": ids[1:, :5], "attention_mask": mask[1:, :5]}
    alone = randomisation_check(net, short, **options)
    torch.testing.assert_close(found.correlation[:, 1:], alone.correlation, atol=1e-9, rtol=0)


class Odd(nn.Module):
    """A parameter of its own, a module that is read but never called, and one that runs twice."""

    def __init__(self):
        super().__init__()
        self.head, self.read = nn.Linear(4, 2), nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        x = self.twice(self.twice(x * self.scale).relu())
        return self.head(x @ self.read.weight)


def test_the_order_goes_from_the_logits_down():
    model = Odd()
    with _run_order(model) as started:
        model(torch.ones(1, 4))
    assert _from_the_logits_down(model, started) == ["head", "twice", "", "read"]
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_stages_share_the_modules_evenly():
    assert _split_evenly(list("abcdefg"), 3) == [["a", "b"], ["c", "d", "e"], ["f", "g"]]
    assert _split_evenly(list("ab"), 9) == [["a"], ["b"]]


def test_stages_must_be_positive(vit):
    with pytest.raises(ValueError, match="stages"):
        randomisation_check(vit, IMAGES, stages=0)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_check_of_all_batches(name):
    audit = context(name)
    values = registered("randomisation").run(audit, "input_x_gradient")
    checks = [
        randomisation_check(audit.model, batch.inputs, batch.target, "input_x_gradient", stages=1)
        for batch in audit.batches
    ]
    expected = torch.cat([check.absolute[-1] for check in checks]).double()
    torch.testing.assert_close(torch.tensor(values["left"]).double(), expected, atol=1e-5, rtol=0)
    assert len(values["stages"]) == len(values["by_stage"]) == 1


@pytest.mark.parametrize(
    ("left", "passed", "decisive", "reason"),
    [(0.1, True, False, "it changes"), (0.7, False, False, "it hardly changes"), (0.95, False, True, "it does not")],
)
def test_a_map_that_stays_decides(left, passed, decisive, reason):
    check = registered("randomisation").check(summarize([left] * 3))
    assert (check.passed, check.decisive) == (passed, decisive)
    assert check.reason.startswith(reason)
