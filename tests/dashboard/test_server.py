import json
import shutil
import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from lrptrain.cli.dashboard import dashboard
from lrptrain.dashboard.server import HEADERS, HOST, app
from lrptrain.loggers import read_samples
from lrptrain.loggers.inputs import input_path

RUN = {"run": "relevance/run"}


def client(folder):
    return TestClient(app(folder), base_url=f"http://{HOST}:8642")


@pytest.fixture
def served(recorded):
    return client(recorded)


def last(folder):
    return f"epoch_0002_step_{read_samples(folder / 'relevance' / 'run', 2)['step'][0]:06d}"


def test_every_question_of_the_page_is_answered(served, recorded):
    assert list(served.get("/api/runs").json()["runs"]) == ["relevance/run", "relevance/texts"]
    asked = {**RUN, "evaluation": last(recorded), "id": ["0", "1"]}
    expected = {
        "events": lambda answer: [event["epoch"] for event in answer["events"]] == [0, 1, 2],
        "scores": lambda answer: len(answer["scores"]["correct"]) == 3,
        "table": lambda answer: len(answer["columns"]["sample_id"]) == 24,
        "cards": lambda answer: set(answer["cards"]) == {"0", "1"},
        "history": lambda answer: len(answer["history"]) == 3,
    }
    for name, holds in expected.items():
        answer = served.get(f"/api/{name}", params=asked)
        assert answer.headers["content-type"] == "application/json"
        assert holds(json.loads(answer.text)), name
    assert served.get("/image", params={**RUN, "id": "0"}).content[8:12] == b"WEBP"
    assert served.get("/image", params={**RUN, "id": "0", "kind": "mask"}).content[8:12] == b"WEBP"


def test_the_page_and_its_parts_are_local(served):
    parts = {name: served.get(name) for name in ("/", "/page.js", "/page.css")}
    assert all(part.status_code == 200 for part in parts.values())
    assert "/page.js" in parts["/"].text
    for part in parts.values():
        assert not [
            line for line in part.text.splitlines() if "http" in line and "w3.org" not in line and "schema" not in line
        ]


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/table?run=none", "/nowhere", "/page.js"])
def test_every_answer_forbids_other_origins(served, path):
    headers = served.get(path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value
    assert "http" not in headers["Content-Security-Policy"]


def test_a_name_that_leads_to_this_machine_gets_nothing(recorded):
    for host in ("evil.example", "127.0.0.1.evil.example", "192.168.0.1"):
        assert TestClient(app(recorded), base_url=f"http://{host}").get("/api/runs").status_code == 400
    assert TestClient(app(recorded), base_url="http://localhost:8642").get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    "run", ["", "..", "/", "relevance", "relevance/run/..", "/etc", "relevance/run/inputs", "nul\0"]
)
def test_only_runs_that_were_found_are_served(served, run):
    for path in ("/api/events", "/api/table", "/image", "/proof.png"):
        assert served.get(path, params={"run": run, "id": "0", "path": "proofs"}).status_code == 404


def test_no_other_file_is_served(recorded, tmp_path):
    (tmp_path / "secret.webp").write_text("secret")
    shutil.copytree(recorded / "relevance", tmp_path / "runs")
    (tmp_path / "runs" / "run" / "inputs" / "link.webp").symlink_to(tmp_path / "secret.webp")
    own = client(tmp_path / "runs")
    for sample_id in ("../../../secret", "/etc/passwd", "link", "", "x" * 3000):
        assert own.get("/image", params={"run": "run", "id": sample_id}).status_code == 404, sample_id
    assert own.get("/image", params={"run": "run", "id": "0.mask"}).content[8:12] == b"WEBP"  # a picture of the run
    for path in ("/static/../server.py", "/%2e%2e/secret.webp", "/run/run.json", "/page.css/../../server.py"):
        assert own.get(path).status_code == 404


def test_odd_questions_get_answers(served):
    for asked in (
        {"since": "x"},
        {"since": "-5"},
        {"since": "1e99"},
        {"since": "nan"},
        {"confidence": "2"},
        {"label": "<b>"},
    ):
        for name in ("events", "scores", "table", "cards", "history"):
            assert served.get(f"/api/{name}", params={**RUN, **asked}).status_code == 200, (name, asked)


def test_the_server_follows_a_run_that_is_being_written(recorded, tmp_path):
    own = client(tmp_path)
    assert own.get("/api/runs").json()["runs"] == {}
    whole = recorded / "relevance" / "run"
    lines = (whole / "events.jsonl").read_bytes().splitlines(keepends=True)
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(lines[0] + lines[1][:40])
    assert list(own.get("/api/runs").json()["runs"]) == ["new"]
    first = own.get("/api/events", params={"run": "new"}).json()
    assert [event["epoch"] for event in first["events"]] == [0]
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    second = own.get("/api/events", params={"run": "new", "since": first["offset"]}).json()
    assert [event["epoch"] for event in second["events"]] == [1, 2]
    shutil.rmtree(folder)
    assert own.get("/api/runs").json()["runs"] == {}


def test_a_poll_has_only_the_runs_that_were_written_since(runs):
    own = client(runs)
    first = own.get("/api/runs").json()
    assert first["names"] == [*first["runs"]] == ["run", "texts"]
    (runs / "texts" / "run.json").write_text("{}")
    second = own.get("/api/runs", params={"since": first["stamp"]}).json()
    assert second["names"] == first["names"]
    assert "texts" in second["runs"]
    third = own.get("/api/runs", params={"since": second["stamp"]}).json()
    assert [*third["runs"]] == ["texts"], "what was written at the last moment may be half known"


def test_curves_of_several_runs_are_one_answer(recorded):
    names = ["relevance/run", "relevance/texts", "none"]
    answer = client(recorded).get("/api/curves", params={"run": names, "name": ["accuracy"]}).json()
    assert [*answer] == names[:2]
    assert [len(curves["accuracy"]) for curves in answer.values()] == [3, 2]


def test_a_damaged_image_is_served_as_what_it_claims_and_nothing_else(runs):
    input_path(runs / "run", "0", ".webp").write_text("<script>alert(1)</script>")
    answer = client(runs).get("/image", params={"run": "run", "id": "0"})
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_cannot_be_served_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder"):
        dashboard(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="port must lie in"):
        dashboard(str(tmp_path), port=70000)


def test_the_page_waits_for_no_library_of_models():
    # They take seconds to import; here, other tests have imported them, so a process of its own is asked.
    heavy = {"torchmetrics", "torchvision", "transformers", "sklearn", "matplotlib"}
    code = f"import sys, lrptrain.dashboard.server; print(sorted({heavy} & set(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == "[]"
