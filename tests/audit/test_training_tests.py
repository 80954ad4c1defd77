"""Other models beside the one that is audited."""

import copy

import pytest
import torch
from audited import QUICK, batches, model

from lrptrain.audit import compare_models
from lrptrain.audit.subject import Subject, prepare
from lrptrain.audit.training_tests import adversary, read_wish, seeds, wishes


def other(seed):
    net = copy.deepcopy(model())
    torch.manual_seed(seed)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return net.train()


@pytest.fixture
def subject():
    net = model()
    parts = prepare(net, batches())
    return Subject(net, parts, ("input_x_gradient", "random", "raw_attention"), parts, retrain=other)


def test_another_seed_is_compared_with_every_method(subject):
    found = seeds(subject, "3", QUICK)
    expected = compare_models(subject.model, other(3).eval(), batches(), "raw_attention")
    torch.testing.assert_close(
        torch.tensor(found["jsd"]["raw_attention"]).double(), expected.jsd.double(), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(torch.tensor(found["tvd"]).double(), expected.tvd.double(), atol=1e-5, rtol=0)
    assert max(found["jsd"]["random"]) == 0  # a random map does not see the model
    assert len(found["right"]) == 10


def test_adversaries_of_methods_that_can_be_differentiated_attention_first(subject):
    names = wishes(subject, QUICK)
    assert names == ["raw_attention @ 1", "input_x_gradient @ 1"]
    assert read_wish(names[0]) == ("raw_attention", 1.0)
    found = adversary(subject, names[1], QUICK)
    assert len(found["tvd"]) == len(found["jsd"]) == 10
    assert 0 < max(found["jsd"]) <= 0.6932
