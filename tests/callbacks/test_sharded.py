"""The monitor of a model that Lightning's ModelParallelStrategy shards tells what it tells of the whole one."""

import copy

import numpy as np
import pytest
import torch
from gloo import in_processes
from PIL import Image
from sharded_runs import SHARDED, best_checkpoint, run, that_fail, trained_net, watched_and_plain
from test_processes import assert_close

from lrptrain.loggers import read_events, read_samples

COSTS = ("relevance/seconds", "relevance/cost_share", "relevance/record_mb")


@pytest.fixture(scope="module")
def state():
    return trained_net().state_dict()


@pytest.fixture(scope="module")
def alone(tmp_path_factory, state):
    """The folder and what is found of the same runs in one process."""
    folder = tmp_path_factory.mktemp("alone")
    watched = run(folder, state, "watched")
    return folder, {"watched": watched, "float32": run(folder, state, "float32", dtype=torch.float32, rate=0.0)}


@pytest.mark.parametrize("how", ["FSDP2 of 2", "TP 2 x FSDP2 2"])  # loops have tensor parallel alone
def test_sharded_models_are_monitored_as_whole_ones_and_trained_as_without_a_monitor(tmp_path, state, alone, how):
    parts, readers = SHARDED[how]
    folder = alone[0]
    expected = copy.deepcopy(alone[1])
    for each in expected.values():
        assert any(take_proofs(each["findings"]))
    processes = in_processes(watched_and_plain, parts * readers, tmp_path / "run", tmp_path, state, how)
    for name, tolerance in {"watched": 1e-9, **({"float32": 1e-5} if how == "FSDP2 of 2" else {})}.items():
        assert expected[name]["findings"]
        for rank, each in enumerate(processes):
            assert each[name]["failures"] == 0, each[name]["told"]
            # The first process alone draws what an intervention did.
            assert any(take_proofs(each[name]["findings"])) == (rank == 0)
            for key in ("ids", "findings", "scalars"):
                assert_close(costless(expected[name][key]), costless(each[name][key]), tolerance, key)
            for mine, whole in zip(each[name]["maps"], expected[name]["maps"], strict=True):
                torch.testing.assert_close(mine, whole, rtol=0, atol=tolerance * float(whole.abs().max()) * 10)
        assert_same_record(folder / "relevance" / name, tmp_path / "relevance" / name, tolerance)
        # Under tensor parallel all read the same batches, and each sample is explained once nevertheless.
        assert sum(each[name]["mine"] for each in processes) == 10
        assert sum(each[name]["mine"] > 1 for each in processes) > 1
        assert [each[name]["folder"] for each in processes] == [True] + [False] * (len(processes) - 1)
    assert {"relies"} <= {finding["verdict"] for finding in expected["watched"]["findings"]}
    for each in processes:
        watched = each["watched"]
        plain = each["plain"]
        assert watched["random"] == plain["random"]
        assert all(torch.equal(x, plain["state"][name]) for name, x in watched["state"].items())
        assert any(not torch.equal(x, state[name.removeprefix("net.")]) for name, x in plain["state"].items())


def take_proofs(findings):
    return [finding.pop("proof") for finding in findings]


def costless(values):
    return {key: x for key, x in values.items() if key not in COSTS} if isinstance(values, dict) else values


def assert_same_record(one, other, tolerance, module="Sharded"):
    assert_close(read_events(one), read_events(other), tolerance)
    assert_close(read_samples(one), read_samples(other), tolerance)
    files = [sorted(path.relative_to(folder) for path in folder.rglob("*.*")) for folder in (one, other)]
    assert files[0] == files[1]
    drawn = [path for path in files[0] if path.suffix == ".png"]
    assert any("proofs" in path.parts for path in drawn)
    for path in drawn:
        pixels = [np.asarray(Image.open(folder / path)).astype(int) for folder in (one, other)]
        assert np.abs(pixels[0] - pixels[1]).max() <= 1 + 255 * 8 * tolerance
    settings = [(folder / "run.json").read_text() for folder in (one, other)]
    assert f'"module": "{module}"' in settings[1]
    assert f'"model": "{module}"' in settings[1]


def test_what_is_wrong_in_one_process_or_in_all_stops_none_for_ever(tmp_path, state):
    first, second = in_processes(that_fail, 2, tmp_path / "run", tmp_path, state)
    for each in (first, second):
        assert each["failing"]["failures"] == 1
        assert "differs by" in each["heads"]
        assert each["heads"].startswith("ValueError: Sharded with whole weights, of which maps are made, does not ans")
        assert each["late heads"]["failures"] > 0
        assert each["late heads"]["findings"] == []
        assert each["unread"]["failures"] > 0
    assert "RuntimeError: only here (process 1)" in first["failing"]["told"][0]
    assert "has several columns" in first["refused"]
    assert "(process 1)" in first["refused"]
    assert second["refused"].startswith("ValueError: 'label' ")


def test_the_best_checkpoint_of_a_sharded_model_is_left_to_a_validation(tmp_path):
    first, second = in_processes(best_checkpoint, 2, tmp_path / "run", tmp_path)
    assert first["failures"] == second["failures"] == 0
    assert "epoch=0" in first["path"]
    (line,) = (line for line in first["told"] if 'trainer.validate(model, loader, ckpt_path="best")' in line)
    assert "leaves out the best checkpoint of a sharded model" in line
    assert any("epoch 1 that was not kept" in " ".join(line.split()) for line in first["told"])
    for each in (first, second):
        assert each["best"].shape == (10, 3)
        assert not np.allclose(each["best"], each["last"], atol=1e-4)
