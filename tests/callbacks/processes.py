"""Scripts that are run in one process and in two."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def one_and_two(root: Path, script: str) -> tuple[Path, Path]:
    """The folders of both runs of a script beside this file, called with a folder and the number of processes."""
    running = []
    for devices in (1, 2):
        folder = root / str(devices)
        folder.mkdir()
        command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), str(devices)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        log = (folder / "log").open("w")
        running.append((subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT), log))
    for process, log in running:
        try:
            process.wait(timeout=120)
        finally:
            process.kill()
            log.close()
        assert process.returncode == 0, Path(log.name).read_text()[-3000:]
    return root / "1", root / "2"


def result(folder: Path, name: str, rank: int = 0) -> Any:
    """What a process of a run wrote."""
    return json.loads((folder / f"{name}-{rank}.json").read_text())
