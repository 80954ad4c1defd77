"""A new loss is a function under a decorator."""

import pytest

from lrptrain.guidance import LOSSES, MAP_LOSSES, register_loss, register_map_loss
from lrptrain.guidance.losses import Needs


def test_every_loss_is_registered_with_what_it_needs():
    needs = {name: loss.needs for name, loss in LOSSES.items()}
    assert {name for name, need in needs.items() if need is Needs.MAP} == set(MAP_LOSSES)
    assert needs["rrr"] is Needs.RECORDING
    assert needs["consistency"] is Needs.SECOND_PASS
    assert len(LOSSES) == len(MAP_LOSSES) + 2 == 9
    assert all(loss.name == name for name, loss in LOSSES.items())


def test_a_name_is_given_once():
    energy = LOSSES["energy"]
    with pytest.raises(ValueError, match="there is a guidance loss 'energy' already"):
        register_loss("energy", Needs.RECORDING)(LOSSES["rrr"].compute)
    with pytest.raises(ValueError, match="there is a guidance loss 'rrr' already"):
        register_map_loss("rrr")(lambda scores, annotation: scores.sum(-1))
    assert LOSSES["energy"] is energy
    assert "rrr" not in MAP_LOSSES
