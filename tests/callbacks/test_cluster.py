"""Processes as SLURM starts them, and starts them again."""

import os
import runpy
import sys
from pathlib import Path

from forks import start_fork
from processes import free_port

from lrptrain.loggers import read_events

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "multi-gpu.md"
SECONDS = 150
SCONTROL = """#!/bin/sh
echo "$@" >> requeued
kill -KILL $(cat pid-*)
"""


def task(folder, number, port, step):
    """One of the two tasks of a job."""
    told = {"JOB_ID": 71, "JOB_NAME": "train", "NTASKS": 2, "NTASKS_PER_NODE": 2, "NODEID": 0}
    told |= {"PROCID": number, "LOCALID": number}
    os.environ.update({f"SLURM_{name}": str(value) for name, value in told.items()})
    others = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    os.environ.update(**others, PATH=f"{folder / 'tools'}{os.pathsep}{os.environ['PATH']}")
    os.chdir(folder)
    sys.argv = ["requeued_script.py", str(PAGE), str(step)]
    with Path(f"log-{number}").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        runpy.run_path(str(HERE / "requeued_script.py"), run_name="__main__")
        sys.stdout.flush()


def job(folder, step):
    """Run the two tasks of a job; in this step one of them gets the signal. Return what they wrote."""
    port = free_port()
    running = [start_fork(task, folder, number, port, step) for number in range(2)]
    for each in running:
        each.join(SECONDS)
        each.kill()
    return [(folder / f"log-{number}").read_text() for number in range(2)]


def test_a_requeued_job_goes_on_with_the_run(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "scontrol").write_text(SCONTROL)
    (tmp_path / "tools" / "scontrol").chmod(0o755)
    first = job(tmp_path, step=6)  # in the middle of the second epoch
    assert not any("fitted" in log for log in first), first
    assert (tmp_path / "requeued").read_text() == "requeue 71\n", first
    (run,) = (tmp_path / "relevance").iterdir()
    before = [event["epoch"] for event in read_events(run)]
    assert before == [0], first
    second = job(tmp_path, step=-1)
    assert all("fitted" in log for log in second), second
    assert [*(tmp_path / "relevance").iterdir()] == [run]
    assert [event["epoch"] for event in read_events(run)] == [0, 1, 2]
    assert len((run / "events.jsonl").read_text().splitlines()) == 3
