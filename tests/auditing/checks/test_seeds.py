"""Models of other seeds beside the one that is audited."""

import copy

import torch
from audited import batches, context, model, registered

from lrptrain.auditing import AuditSettings, compare_models


def retrain(seed):
    net = copy.deepcopy(model())
    torch.manual_seed(seed)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return net.train()


def test_there_are_as_many_units_as_seeds():
    assert registered("seeds", AuditSettings(seeds=3)).units(context()) == ["1", "2", "3"]
    assert "retrain" in registered("seeds").obstacle(context())
    assert registered("seeds").obstacle(context(retrain=retrain)) == ""


def test_another_seed_is_compared_with_every_method():
    audit = context(retrain=retrain)
    values = registered("seeds").run(audit, "3")
    expected = compare_models(audit.model, retrain(3).eval(), batches(), "raw_attention")
    jsd = torch.tensor(values["jsd"]["raw_attention"]).double()
    torch.testing.assert_close(jsd, expected.jsd.double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(values["tvd"]).double(), expected.tvd.double(), atol=1e-5, rtol=0)
    assert max(values["jsd"]["random"]) == 0  # a random map does not see the model
    assert len(values["right"]) == 10
