"""The first of two processes audits the samples of both; the other waits, also for one that fails."""

from processes import folders_of, result

folders = folders_of("audit_ddp_script.py")


def test_two_processes_find_what_one_finds(folders):
    one, first, second = result(folders[0], "audited"), result(folders[1], "audited"), result(folders[1], "audited", 1)
    assert one["samples"] == first["samples"] == 15
    assert one["verdicts"] == first["verdicts"]
    assert len(one["verdicts"]) == 2
    assert second["verdicts"] == []
    assert not one["told"] + first["told"] + second["told"]


def test_a_failure_in_the_first_process_stops_neither(folders):
    first, second = (result(folders[1], "failing", rank) for rank in (0, 1))
    assert first["verdicts"] == second["verdicts"] == []
    assert len(first["told"]) == 1
    assert "ZeroDivisionError" in first["told"][0]
    assert second["told"] == []
    assert first["steps"] == second["steps"] > 0
