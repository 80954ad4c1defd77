"""Maps of sharded models are those of whole ones, and leave the training as it was."""

import pytest
import torch
from gloo import in_processes
from sharded_work import METHODS, MORE, SHARDED, as_trained, differences, in_turns, most_held, refused


@pytest.mark.parametrize(
    ("how", "name", "methods"),
    [
        ("FSDP2 of 2", "vit", METHODS + MORE),
        ("FSDP2 of 2", "llama", METHODS),
        ("TP of 2", "bert", METHODS),
        ("TP 2 x FSDP2 2", "bert", METHODS),
    ],
)
def test_maps_are_those_of_the_whole_model(tmp_path, how, name, methods):
    for found in in_processes(differences, SHARDED[how][0], tmp_path, how, name, methods):
        assert len(found) == len(methods) + 1
        # The same operations on the same numbers, but for the order in memory of what autograd keeps, and of weights.
        assert max(map(max, found.values())) <= 64, found


@pytest.mark.parametrize("how", ["FSDP2 of 2", "TP of 2"])
def test_the_training_stays_as_it_was_to_the_bit(tmp_path, how):
    for mine, expected in in_processes(as_trained, SHARDED[how][0], tmp_path, how):
        assert mine["losses"] == expected["losses"]
        assert mine["random"] == expected["random"]
        assert mine["state"].keys() == expected["state"].keys()
        assert any(name.endswith(".grad") for name in mine["state"])
        assert all(torch.equal(x, expected["state"][name]) for name, x in mine["state"].items())


def test_processes_may_do_different_things(tmp_path):
    first, second, third = in_processes(in_turns, 3, tmp_path)
    assert [each["explained"] for each in (first, second, third)] == [1, 1, 2]
    assert second["failure"] == "UnsupportedMethodError"
    for each in (first, second, third):
        assert each["same"]
        assert each["everybody"] == [0, 1, 2]


def test_no_more_than_the_weights_of_one_module_are_whole_at_once(tmp_path):
    for each in in_processes(most_held, 2, tmp_path):
        assert each["gathers"] > 100
        assert each["left"] == 0
        assert each["most"] == each["largest module"]


def test_what_cannot_be_had_is_refused(tmp_path):
    for messages in in_processes(refused, 2, tmp_path):
        for name in ("create_graph", "recorded create_graph"):
            assert messages[name].startswith("UnsupportedModelError: a map of a sharded model has no graph"), messages
        assert "writes into a sharded weight" in messages["written"]
        assert "overwrites in place later on" in messages["lrp"]
        assert "modified by an inplace operation" in messages["input_x_gradient"]
