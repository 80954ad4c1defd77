"""The monitor of loops and of transformers' Trainer comes to the same in two processes as in one."""

import pytest
from processes import folders_of, result

folders = folders_of("monitor_loops_ddp_script.py")


def found_alike(folders, name):
    """What one process and each of two have, which is the same."""
    one, two, other = result(folders[0], name), result(folders[1], name), result(folders[1], name, 1)
    for each in (two, other):
        assert each["ids"] == one["ids"]
        assert each["failures"] == 0
        # In float64: batches of other sizes add up in another order, eps 2e-16.
        assert each["scalars"] == pytest.approx(one["scalars"], rel=1e-9, nan_ok=True)
        assert [finding["name"] for finding in each["findings"]] == [finding["name"] for finding in one["findings"]]
    return one, two, other


@pytest.mark.parametrize("name", ["loop", "transformers"])
def test_two_processes_find_what_one_does(folders, name):
    _, two, other = found_alike(folders, name)
    assert (two["mine"], other["mine"]) == (5, 4)
    assert two["folder"]
    assert not other["folder"]


def test_two_processes_tell_all_labels_as_one_does(folders):
    one, _, _ = found_alike(folders, "labels")
    assert {each["name"].partition(", for")[2] for each in one["findings"]} == {
        " the label 'label 0'",
        " the label 'label 1'",
    }


def test_what_one_process_refuses_all_do(folders):
    assert "text1: rationale must be 1" in result(folders[1], "wrong", 1)
    assert "(process 1)" in result(folders[1], "wrong", 0)
