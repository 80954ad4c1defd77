"""Runs that are killed at any file event, go on, are taken back and branch: what stands is what was evaluated.

`LRPTRAIN_FUZZ=1000 python -m pytest tests/fuzz/test_kills.py` lets a thousand lives follow one another.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIVES = int(os.environ.get("LRPTRAIN_FUZZ", "24"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="lives are forked")
def test_no_kill_damages_a_record_or_mixes_two_timelines(tmp_path):
    script = str(Path(__file__).with_name("lives.py"))
    done = subprocess.run([sys.executable, script, tmp_path, str(LIVES), "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout.split(" lives, ")[1].split()[0])
    assert kills > LIVES / 3
