import pytest
from audited import METHODS, context, registered

from lrptrain.auditing.brought import evaluation_with_gradients
from lrptrain.auditing.checks import cost


def test_a_map_costs_its_time_in_training_passes(monkeypatch):
    audit = context()
    passes = iter([5.0, 2.0, 9.0, 4.0])  # twice each of the two batches, of which the faster counts
    monkeypatch.setattr(cost, "_training_pass", lambda *_: next(passes))
    audit.cached(("maps", "random"), lambda: [("map", 4.0), ("map", 16.0)])
    assert registered("cost").run(audit, "random") == {"cost": [3.0], "seconds": 2.0}


def test_frozen_layers_do_not_make_training_cheaper():
    audit = context("bert")
    audit.model.requires_grad_(False)
    with evaluation_with_gradients(audit.model):
        values = registered("cost").run(audit, METHODS[0])
    assert values["cost"][0] > 0
    assert values["seconds"] == pytest.approx(sum(audit.seconds(METHODS[0])) / 10)
    assert not any(parameter.requires_grad for parameter in audit.model.parameters())
