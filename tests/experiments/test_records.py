"""What is written says on what it was made, and what was made elsewhere keeps what it says."""

import json
import shutil
from dataclasses import dataclass

import pytest
import torch

from experiments import parallel, per_method, records


@dataclass(frozen=True)
class Square:
    number: int

    @property
    def key(self) -> str:
        return f"square {self.number}"


def squared(task: Square) -> dict[str, int]:
    return {"square": task.number**2}


def test_a_record_names_processor_torch_and_commit(tmp_path):
    path = tmp_path / "new" / "lines.jsonl"
    records.append(path, {"value": 1})
    records.append(path, {"value": 2, records.KEY: {"cpu": "another"}})
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["value"] == 1
    assert first[records.KEY] == records.made_on()
    assert second[records.KEY] == {"cpu": "another"}
    found = records.made_on()
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cpu"]
    assert found["commit"] == "unknown" or int(found["commit"].rstrip("+"), 16) > 0


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_results_and_pages_are_no_change_of_what_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "ROOT", tmp_path)
    names = ["experiments/some/results/runs.jsonl", "experiments/some/README.md", "experiments/some/run.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as committed\n")
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "--message", "all")):
        records._git(*command)
    unchanged = records._git("rev-parse", "--short=12", "HEAD")
    for name, commit in zip(names, [unchanged, unchanged, f"{unchanged}+"], strict=True):
        (tmp_path / name).write_text("changed\n")
        assert records._commit() == commit, name


def test_a_run_of_a_grid_is_stamped_where_it_is_made_and_older_ones_are_kept(tmp_path):
    # As the worker calls it; a process of its own would cost the test seconds of imports.
    assert parallel._done(squared, Square(3)) == {
        "key": "square 3",
        "square": 9,
        records.KEY: records.made_on(),
    }
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": "square 2", "square": 4}\n')  # as written before records were stamped
    assert parallel.complete(path, [Square(2)], squared, workers=1) == {"square 2": {"key": "square 2", "square": 4}}


def test_a_file_of_methods_names_every_machine_that_filled_it(tmp_path):
    path = tmp_path / "seed_0.json"
    elsewhere = {"head": {"seed": 0}, "methods": {"random": {"value": 1}}, records.KEY: [{"cpu": "another"}]}
    path.write_text(json.dumps(elsewhere))
    rows = [per_method.Row("random"), per_method.Row("attnlrp"), per_method.Row("rollout")]
    found = per_method.fill(path, {"seed": 0}, rows, lambda row: {"value": 2})
    assert found["methods"] == {"random": {"value": 1}, "attnlrp": {"value": 2}, "rollout": {"value": 2}}
    assert found[records.KEY] == [{"cpu": "another"}, records.made_on()]
