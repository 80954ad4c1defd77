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
    _, left = randomisation_check(vit, IMAGES, None, method, stages=4)
    if method == "random":
        torch.testing.assert_close(left, torch.ones(4, 6))
    else:
        assert left.shape == (4, 6)
        assert left[-1].mean() < 0.5


def test_attention_of_intact_blocks_is_blind_to_the_weights_above(vit):
    """Raw attention of the last block does not see the head: the first stage, which takes the head alone, leaves it."""
    stages, left = randomisation_check(vit, IMAGES, None, "raw_attention", stages=1000)
    assert stages[0] == "head"
    torch.testing.assert_close(left[0], torch.ones(6))
    assert stages[-1] == "(model)"  # position embedding and class token belong to the whole
    assert left[-1].mean() < 0.5


def test_model_and_random_state_are_as_before(vit):
    before = copy.deepcopy(vit.state_dict())
    states = torch.get_rng_state(), random.getstate()
    hooks = [len(module._forward_pre_hooks) for module in vit.modules()]
    randomisation_check(vit, IMAGES, 1, "generic_attention", 3)
    assert all(torch.equal(value, before[name]) for name, value in vit.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert [len(module._forward_pre_hooks) for module in vit.modules()] == hooks
    assert all(parameter.grad is None for parameter in vit.parameters())


def test_the_seed_fixes_the_weights_and_the_target_stays(vit):
    first, again, other, by_default = (
        randomisation_check(vit, IMAGES, target, "generic_attention", 2, seed)[1]
        for target, seed in ((2, 0), (2, 0), (2, 1), (None, 0))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    predicted = randomisation_check(vit, IMAGES, vit(IMAGES).argmax(1), "generic_attention", 2)[1]
    assert torch.equal(by_default, predicted)
    assert not torch.equal(by_default, first)


def test_more_stages_end_at_the_same_weights(vit):
    (_, few), (_, many) = (randomisation_check(vit, IMAGES, None, "rollout", stages) for stages in (1, 6))
    assert torch.equal(few[-1], many[-1])


def test_a_batch_equals_singles(vit):
    images = IMAGES.double()
    _, together = randomisation_check(vit.double(), images, 0, "generic_attention", 2)
    alone = [randomisation_check(vit, image[None], 0, "generic_attention", 2)[1] for image in images]
    vit.float()
    torch.testing.assert_close(together, torch.cat(alone, 1), atol=1e-9, rtol=0)


def test_padding_of_texts_takes_no_part():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=30, **small_sizes(16, layers=2))
    net = transformers.BertForSequenceClassification(config).double().eval()
    ids = torch.randint(1, 30, (2, 8))
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    short = {"input_ids": ids[1:, :5], "attention_mask": mask[1:, :5]}
    (_, found), (_, alone) = (
        randomisation_check(net, inputs, 0, "input_x_gradient", 2)
        for inputs in ({"input_ids": ids, "attention_mask": mask}, short)
    )
    torch.testing.assert_close(found[:, 1:], alone, atol=1e-9, rtol=0)


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
        randomisation_check(vit, IMAGES, None, "rollout", stages=0)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_check_of_all_batches(name):
    audit = context(name)
    values = registered("randomisation").run(audit, "input_x_gradient")
    lefts = [
        randomisation_check(audit.model, batch.inputs, batch.target, "input_x_gradient", 1)[1]
        for batch in audit.batches
    ]
    expected = torch.cat([left[-1] for left in lefts]).double()
    torch.testing.assert_close(torch.tensor(values["left"]).double(), expected, atol=1e-5, rtol=0)
    assert len(values["stages"]) == len(values["by_stage"]) == 1


@pytest.mark.parametrize(
    ("left", "passed", "decisive", "reason"),
    [
        (0.49, True, False, "it changes"),
        (0.51, False, False, "it hardly changes"),
        (0.89, False, False, "it hardly changes"),
        (0.91, False, True, "it does not"),
    ],
)
def test_a_map_that_stays_decides(left, passed, decisive, reason):
    check = registered("randomisation").check(summarize([left] * 3))
    assert (check.passed, check.decisive) == (passed, decisive)
    assert check.reason.startswith(reason)
