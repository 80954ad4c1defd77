"""Experiments import from the root, their commands parse, they say what data they lack, and tables are the results'."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import importlib, pathlib
for path in sorted(pathlib.Path("experiments").rglob("*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts))
print("imported")
"""
TABLES = """
import json
from importlib import import_module
from pathlib import Path
from experiments.parallel import load

def check(name, texts):
    readme = Path("experiments", name, "README.md").read_text(encoding="utf-8")
    for text in texts:
        assert text in readme, (name, text)

def results(name, start="seed"):
    files = sorted(Path("experiments", name, "results").glob(f"{start}_*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]

check("perturbation", [import_module("experiments.perturbation.run").table(results("perturbation"))])
golden = import_module("experiments.golden.run")
check("golden", [golden.table(json.loads(golden.RESULTS.read_text(encoding="utf-8"))["errors"])])
peers = import_module("experiments.peers.run")
check("peers", [peers.table(json.loads(peers.RESULTS.read_text(encoding="utf-8"))["rows"])])
benchmark = import_module("experiments.benchmark.run")
check("benchmark", benchmark.texts().values())
fixes = import_module("experiments.fixes.run")
check("fixes", fixes.texts_of_tables().values())
check("default_method", [import_module("experiments.default_method.run").saved_tables()])
speed = Path("experiments/speed/results").glob("*_cpu.json")
measured = {path.stem.removesuffix("_cpu"): json.loads(path.read_text(encoding="utf-8")) for path in speed}
cells = json.loads(Path("experiments/speed/results/cpu.json").read_text(encoding="utf-8"))
check("speed", [import_module("experiments.speed.run").tables(cells)])
check("speed", [import_module("experiments.speed.memory").table(measured["memory"])])
for part in ("gpu", "cpu_time"):
    saved = json.loads(Path(f"experiments/speed/results/{part}.json").read_text(encoding="utf-8"))
    module = import_module(f"experiments.speed.{part}")
    check("speed", [(module.tables if part == "gpu" else module.table)(saved)])
real = import_module("experiments.real_models.run")
check("real_models", real.tables().values())
table = import_module("experiments.class_specific.run").table
check("class_specific", [table(results("class_specific", "digits"))])
check("segment_scenes", import_module("experiments.segment_scenes.run").texts().values())
stages = ("classifiers", "sources", "refined", "segmenters")
pets = {name: list(load(Path(f"experiments/segment_pets/results/{name}.jsonl")).values()) for name in stages}
tested = import_module("experiments.sweep.table")
assert tested.PAGE.read_text(encoding="utf-8") == tested.page(), "run python -m experiments.sweep.table"
check("sweep", [tested.summary()])
check("segment_pets", import_module("experiments.segment_pets.report").tables(pets).values())
made_on = import_module("experiments.made_on")
assert set(made_on.readmes()) == {path.parent.name for path in Path("experiments").glob("*/README.md")}
assert made_on.readmes().keys() > made_on.BEFORE.keys()
for name in made_on.readmes():
    check(name, [made_on.line(name)])
print("checked")
"""
COMMANDS = """
from tests.experiments.commands import check_commands
check_commands()
print("parsed")
"""
RUN_WITHOUT_DATA = """
import runpy, sys
sys.modules.pop("experiments.perturbation.run", None)
runpy.run_module("experiments.perturbation.run", run_name="__main__")
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python in the root, as the commands of the experiments are."""
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )


def test_modules_import_tables_are_the_results_commands_parse_and_missing_data_are_one_clear_line(tmp_path):
    """In one process, as what they import takes longer than what they do."""
    done = python("-c", "\n".join([IMPORT_ALL, TABLES, COMMANDS, RUN_WITHOUT_DATA]), LRPTRAIN_DATA=str(tmp_path))
    assert done.stdout == "imported\nchecked\nparsed\n", done.stderr[-2000:]
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert str(tmp_path / "data" / "oxford_pets3") in line
    assert "python -m experiments.data" in line
    assert "LRPTRAIN_DATA" in line


def test_no_experiment_changes_the_import_path_but_the_one_that_borrows_from_the_tests():
    files = [path for path in (ROOT / "experiments").rglob("*.py") if "sys.path" in path.read_text(encoding="utf-8")]
    assert [path.parent.name for path in files] == ["golden"]


def test_the_overview_names_every_data_set_with_its_source_and_licence(tmp_path):
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    (tmp_path / "data" / "cifar10" / "cifar10_jpeg.zip").touch()
    code = "from experiments.data import SOURCES, overview; print(len(SOURCES)); print(overview())"
    count, *lines = python("-c", code, LRPTRAIN_DATA=str(tmp_path)).stdout.splitlines()
    for heading in ("  from: ", "  licence: "):
        assert sum(line.startswith(heading) for line in lines) == int(count)
    assert "cifar10: there (data/cifar10/cifar10_jpeg.zip)" in lines
    assert "pets: MISSING (data/oxford_pets3)" in lines
