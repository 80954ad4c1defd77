"""Guidance in loops of one's own does in two processes what it does in one."""

import pytest
import torch
from guided import RATE
from guided_loops import LOOPS
from processes import folders_of, result
from test_guidance_gradients import assert_close
from test_guidance_processes import EXACT, SINGLE

folders = folders_of("guidance_loops_ddp_script.py")


NAMES = [name for name in LOOPS if name != "Lightning"]


@pytest.mark.parametrize("name", [*NAMES, "one side", "bounded"])
def test_two_processes_train_as_one_does(folders, name):
    one, two, other = (
        torch.load(folder / f"{name}-{rank}.pt") for folder, rank in ((folders[0], 0), (folders[1], 0), (folders[1], 1))
    )
    assert_close(two, other, 0.0)
    assert_close(two, one, SINGLE * RATE if name == "bounded" else EXACT)
    assert result(folders[1], name) == pytest.approx(result(folders[1], name, 1), nan_ok=True)
    assert result(folders[1], name) == pytest.approx(result(folders[0], name), rel=SINGLE, nan_ok=True)
