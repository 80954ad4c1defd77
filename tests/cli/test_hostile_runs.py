"""Every verb that takes the folder of a run, on those of a stranger: an answer or one line, soon and in little room."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from starlette.testclient import TestClient

from lrptrain.cli import main
from lrptrain.cli.check import UNREADABLE
from lrptrain.dashboard.server import HOST, app
from lrptrain.files import MOST_BYTES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", hostile.RUNS)
def test_the_gate_fails_on_what_it_cannot_read(name, tmp_path, capsys):
    hostile.RUNS[name](tmp_path / "run")
    if name not in hostile.UNREADABLE:
        main(["check", str(tmp_path)])
        assert "passed" in capsys.readouterr().out
        return
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path)])
    assert ended.value.code == UNREADABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lrptrain: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", hostile.RUNS)
def test_the_report_is_written(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    hostile.RUNS[name](tmp_path / "run")
    main(["report", str(tmp_path / "run")])
    assert "1 run" in capsys.readouterr().out
    html = Path("report.html").read_text(encoding="utf-8")
    assert len(html) < 10**7
    assert "root:x:0" not in html  # of /etc/passwd


@pytest.mark.parametrize("name", hostile.RUNS)
def test_the_page_answers(name, tmp_path):
    hostile.RUNS[name](tmp_path / "run")
    client = TestClient(app(tmp_path), base_url=f"http://{HOST}:8642")
    asked = {"run": "run", "evaluation": "epoch_0001_step_000010", "id": ["a"], "target": "label"}
    for question in ("runs", "events", "scores", "table", "cards", "history", "notes"):
        answer = client.get(f"/api/{question}", params=asked)
        assert answer.status_code == 200
        assert json.loads(answer.text) is not None
        assert len(answer.text) < 10**6
        assert "root:x:0" not in answer.text
    assert client.get("/image", params=asked).status_code in (200, 404)


LITTLE_ROOM = """
import re, sys
from pathlib import Path
from lrptrain.cli import main
for verb, folder in (("check", "a file without end"), ("report", "a device"), ("report", "eight gigabytes of text")):
    try:
        main([verb, folder, *([] if verb == "check" else ["--output=report.html"])])
    except SystemExit:
        pass
    print(*re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()), "after", verb, folder)
"""


def test_little_room_is_enough(tmp_path):
    """What Python, torch and pyarrow take by themselves is some hundred megabytes."""
    for name in re.findall(r'\("\w+", "([^"]+)"\)', LITTLE_ROOM):
        hostile.RUNS[name](tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_ROOM], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = re.findall(r"(\d+) after", done.stdout)
    assert len(told) == 3
    assert int(told[-1]) < 1_000_000 + 2 * MOST_BYTES // 1000, done.stdout
