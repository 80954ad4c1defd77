"""In which folder a run is continued, and whose evaluations it begins with."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lrptrain.loggers import EpochRecord, RecordWriter, read_events
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, _start_of, continue_run, start_run


def evaluate(run: MonitoredRun, *epochs: int) -> list[EvaluationKey]:
    """Write evaluations, and return their keys."""
    run.prepare({})
    keys = [EvaluationKey.new((epoch, 5 * epoch)) for epoch in epochs]
    for key in keys:
        run.write(RecordWriter(1.0), EpochRecord(key.epoch, key.step), key)
    return keys


def epochs(run: MonitoredRun) -> list[int]:
    return [event["epoch"] for event in read_events(run.folder)]


@pytest.fixture
def killed(tmp_path):
    """A run of three epochs that has not ended, and its checkpoints."""
    run = start_run(tmp_path, "run")
    keys = evaluate(run, 0, 1, 2)
    change(run.folder, writer={"host": "elsewhere"})
    return run, [RunPoint("run", run.run_id, key) for key in keys]


def change(folder: Path, **values: object) -> None:
    settings = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(settings | values))


def content(run: MonitoredRun) -> dict[str, str]:
    return {path.name: path.read_text() for path in run.folder.glob("*.json*")}


def branched(tmp_path: Path, run: MonitoredRun, point: RunPoint, name: str | None = None) -> MonitoredRun:
    """What continues in a folder of its own, by an evaluation of epoch 3; the other run stays as it is."""
    before = content(run)
    branch = continue_run(tmp_path, point, name)
    evaluate(branch, 3)
    assert content(run) == before
    assert branch.folder != run.folder
    return branch


def test_a_run_continues_in_its_folder_without_what_was_later_than_the_checkpoint(killed, tmp_path):
    run, points = killed
    again = continue_run(tmp_path, points[2])
    assert (again.folder, again.run_id, again.notice) == (run.folder, run.run_id, "")
    earlier = continue_run(tmp_path, points[0])
    assert earlier.notice == "'run' resumes after epoch 0, step 0; 2 later evaluations are dropped"
    evaluate(earlier, 1)
    assert epochs(earlier) == [0, 1]


def test_a_run_that_ended_later_is_branched_and_one_that_ended_there_goes_on(killed, tmp_path):
    run, points = killed
    again = continue_run(tmp_path, points[2])
    again.prepare({})
    again.end(points[2].last)
    change(run.folder, writer={"host": "elsewhere"})
    assert continue_run(tmp_path, points[2]).folder == run.folder
    branch = branched(tmp_path, run, points[0])
    assert "ran from the checkpoint to its end: this run continues in 'run-2'" in branch.notice
    assert epochs(branch) == [0, 3]
    parent = json.loads((branch.folder / "run.json").read_text())["parent"]
    assert parent == {"run": "run", "id": run.run_id, "evaluation": asdict(points[0].last)}
    assert branch.run_id != run.run_id


def test_a_checkpoint_of_a_timeline_that_was_left_is_branched(killed, tmp_path):
    run, points = killed
    evaluate(continue_run(tmp_path, points[0]), 1)
    change(run.folder, writer={"host": "elsewhere"})
    branch = branched(tmp_path, run, points[2])
    assert "'run' has evaluations after the checkpoint" in branch.notice
    assert epochs(branch) == [0, 1, 2, 3]


def test_another_name_asks_for_a_branch(killed, tmp_path):
    run, points = killed
    assert continue_run(tmp_path, points[2], "run").folder == run.folder
    branch = branched(tmp_path, run, points[0], "warmer")
    assert (branch.folder.name, epochs(branch)) == ("warmer", [0, 3])


def test_a_run_of_that_name_in_another_root_is_left_alone(killed, tmp_path):
    stranger = start_run(tmp_path / "other", "run")
    evaluate(stranger, 0)
    branch = branched(tmp_path / "other", stranger, killed[1][2])
    assert "of the checkpoint is not in" in branch.notice
    assert (branch.folder.name, epochs(branch)) == ("run-2", [3])


def test_a_run_that_another_process_writes_is_branched(killed, tmp_path):
    run, points = killed
    writer = run._writer
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        change(run.folder, writer={**writer, "pid": other.pid, "started": _start_of(other.pid)})
        assert branched(tmp_path, run, points[2]).folder.name == "run-2"
        other.communicate(b"\n")
    change(run.folder, writer={**writer, "pid": 1})  # there is one, but it started at another time
    assert continue_run(tmp_path, points[2]).folder == run.folder


def test_a_folder_has_one_writer(killed):
    run, _ = killed
    assert run.is_taken()
    run.end()
    assert json.loads((run.folder / "run.json").read_text())["ended"] is False


def test_an_evaluation_that_was_under_way_counts_once_it_was_written(killed, tmp_path):
    run, points = killed
    last, pending = points[1].last, points[2].last
    again = continue_run(tmp_path, RunPoint("run", run.run_id, last, pending))
    assert (again.folder, again.notice) == (run.folder, "")
    unwritten = RunPoint("run", run.run_id, last, EvaluationKey.new((2, 10)))
    assert "1 later evaluations are dropped" in continue_run(tmp_path, unwritten).notice


@pytest.mark.parametrize("name", ["../stranger", "a/b", "..", "", "a\\b", 3])
def test_a_checkpoint_does_not_choose_where_files_are_written(name):
    plain = {"name": name, "run_id": "1", "last": None, "pending": None}
    assert RunPoint.from_dict(plain) is None
    assert RunPoint.from_dict({**plain, "name": "run"}) == RunPoint("run", "1", None)
