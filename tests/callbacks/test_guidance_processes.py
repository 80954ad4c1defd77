"""Guidance in two processes is guidance in one, and a failure in one of them stops neither."""

import pytest
import torch
from guided import RATE
from processes import folders_of, result
from test_guidance_gradients import assert_close

EXACT = 1e-12  # of float64
SINGLE = 1e-4  # where the norms of gradients have a part, which are float32

folders = folders_of("guidance_ddp_script.py")


def state(folder, name, rank=0):
    return torch.load(folder / f"{name}-{rank}.pt")


@pytest.mark.parametrize("name", ["all", "some", "one side", "default"])
def test_two_processes_train_as_one_does(folders, name):
    assert_close(
        state(folders[1], name),
        state(folders[0], name),
        EXACT if name != "default" else SINGLE * RATE,
    )
    one, two, other = result(folders[0], name), result(folders[1], name), result(folders[1], name, 1)
    assert two["factor"] == other["factor"]
    assert (two["factor"] is None) == (name != "default")
    assert two["scalars"] == other["scalars"]
    assert one["scalars"].keys() >= {"guidance/energy", "guidance/rrr", "guidance/samples", "guidance/norm_ratio"}
    distances = [
        each["scalars"].pop("guidance/swap_distance") for each in (one, two)
    ]  # each process swaps among its own
    assert all(0 < distance < 1 for distance in distances)
    assert two["scalars"] == pytest.approx(one["scalars"], rel=SINGLE)


@pytest.mark.parametrize("name", ["consistency", "failing"])
def test_processes_stay_alike(folders, name):
    assert_close(state(folders[1], name), state(folders[1], name, 1), 0.0)
    assert all(x.isfinite().all() for x in state(folders[1], name).values())


def test_a_failure_in_one_process_stops_neither(folders):
    first, second = (result(folders[1], "failing", rank) for rank in (0, 1))
    assert (first["counts"], second["counts"]) == ([0, 0], [1, 0])
    assert first["scalars"]["guidance/failures"] == second["scalars"]["guidance/failures"] == 1
    assert "computing the loss: RuntimeError: only here" in second["told"][0]
    assert not first["told"]
