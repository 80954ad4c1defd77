"""Scripts that are run in one process and in two."""

import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from forks import start_fork

SECONDS = 150


def folders_of(script: str) -> Any:
    """A fixture: the folders of the same runs in one process and in two."""

    @pytest.fixture(scope="module")
    def folders(tmp_path_factory):
        return one_and_two(tmp_path_factory.mktemp("processes"), script)

    return folders


def one_and_two(root: Path, script: str) -> tuple[Path, Path]:
    """The folders of both runs of a script beside this file, called with a folder and the number of processes."""
    path = Path(__file__).with_name(script)
    running = []
    for devices in (1, 2):
        folder = root / str(devices)
        folder.mkdir()
        port = free_port()
        for rank in range(devices):
            process = start_fork(run_script, path, folder, devices, rank, port)
            running.append((process, folder / f"log-{rank}"))
    for process, log in running:
        process.join(SECONDS)
        process.kill()
        assert process.exitcode == 0, log.read_text()[-3000:]
    return root / "1", root / "2"


def run_script(path: Path, folder: Path, devices: int, rank: int, port: int) -> None:
    """Run a script as `python script folder devices`, as the process of this rank if there are several."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if devices > 1:  # as torchrun does: Lightning starts no further process then
        ranks = {"LOCAL_RANK": rank, "NODE_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in ranks.items()})
    sys.argv = [str(path), str(folder), str(devices)]
    sys.path.insert(0, str(path.parent))
    with (folder / f"log-{rank}").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            traceback.print_exc()
            raise


def free_port() -> int:
    """A port of this machine that nothing listens to."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def result(folder: Path, name: str, rank: int = 0) -> Any:
    """What a process of a run wrote."""
    return json.loads((folder / f"{name}-{rank}.json").read_text())
