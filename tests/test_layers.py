"""What each part may import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = (
    "lightning", "pytorch_lightning", "wandb", "timm", "transformers", "scipy", "captum", "matplotlib", "torchmetrics",
)  # fmt: skip
LATER = ("lightning", "pytorch_lightning", "wandb", "tensorboard", "mlflow", "pyarrow", "matplotlib", "PIL")
ENGINE = {"torch", "numpy", "jaxtyping", *sys.stdlib_module_names}
FILES = sorted((ROOT / "lrptrain" / "relevance").rglob("*.py"))


LIGHT = {"relevance": HEAVY, **dict.fromkeys(("findings", "render", "loggers"), LATER)}


def test_what_is_imported_everywhere_loads_no_heavy_library():
    code = "\n".join(
        f"import sys, lrptrain.{part}; print([name for name in {names} if name in sys.modules])"
        for part, names in LIGHT.items()
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert output.stdout.split() == ["[]"] * len(LIGHT)


def imported(tree: ast.AST) -> set[str]:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    origins = [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {*names, *origins}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_engine_imports_only_torch_numpy_and_itself(file):
    # How a warning is shown needs nothing but Python. What draws a map, which needs no more than the engine does, is
    # imported when a map is shown.
    for_pictures = ("lrptrain.render",) if file.name == "showing.py" else ()
    allowed = ("lrptrain.relevance", "lrptrain.terminal", *for_pictures)
    for name in imported(ast.parse(file.read_text())):
        assert name.split(".")[0] in ENGINE or name.startswith(allowed), name


def test_second_implementations_stand_on_the_tape_and_name_what_they_are_tested_against():
    room = ROOT / "lrptrain" / "relevance" / "fast"
    table = (room / "__init__.py").read_text(encoding="utf-8")
    files = [file for file in room.glob("*.py") if file.stem not in ("__init__", "switch")]
    assert files
    for file in files:
        assert f"| `{file.stem}` |" in table, file.stem
        own = {name for name in imported(ast.parse(file.read_text(encoding="utf-8"))) if name.startswith("lrptrain.")}
        allowed = ("lrptrain.relevance.fast", "lrptrain.relevance.tape", "lrptrain.relevance.propagation")
        assert all(name.startswith(allowed) for name in own), own


SINKS = {"loggers", "extras", "files"}
# What each package of the project may import of it, beside itself; see CONTRIBUTING.md.
LAYERS = {
    "terminal": set(),
    "relevance": {"render"},
    "extras": set(),
    "files": set(),
    "batch": {"relevance"},
    "metrics": {"batch", "relevance"},
    "guidance": {"batch", "cues", "metrics", "relevance", "trainers", "extras"},
    "cues": {"batch", "render", "extras"},
    "findings": {"files"},
    "render": {"extras"},
    "trainers": {"models", "relevance"},
    "loggers": {"findings", "render", "extras", "files"},
    "dashboard": {"render", "loggers", "extras", "files"},
    "monitor": {"relevance", "batch", "cues", "metrics", "findings", "render", "trainers", *SINKS},
    "auditing": {"relevance", "batch", "metrics", "monitor", "trainers", "extras", "files"},
    "repairing": {"auditing", "batch", "cues", "guidance", "metrics", "relevance", "trainers", "extras"},
    "models": {"extras"},
    "data": {"batch", "models", "extras", "files"},
    "segmentation": {"batch", "data", "models", "monitor", "relevance", "trainers", "extras", "files"},
    "callbacks": {
        "auditing",
        "relevance",
        "batch",
        "guidance",
        "cues",
        "loggers",
        "monitor",
        "segmentation",
        "trainers",
        "extras",
    },
}


# What stands above all layers: the command line, and two names under which a part of the engine is imported.
ABOVE = {"cli", "rules", "targets"}


def test_every_package_is_a_layer():
    """One that is not in the list could import whatever it likes."""
    found = {path.stem for path in (ROOT / "lrptrain").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in found if not name.startswith("_")} == {*LAYERS, *ABOVE}


def imported_packages(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("lrptrain.")}


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_imports_run_one_way(layer):
    package = ROOT / "lrptrain" / layer
    files = list(package.rglob("*.py")) if package.is_dir() else [package.with_suffix(".py")]
    assert files
    # `terminal` lies below all of them: it needs nothing but Python.
    packages = {name for path in files for name in imported_packages(path)} - {layer, "terminal"}
    assert packages <= LAYERS[layer]


def test_only_one_file_of_the_libraries_imports_wandb():
    files = [*(ROOT / "lrptrain").rglob("*.py"), *(ROOT / "callbacks").rglob("*.py")]
    users = {path.name for path in files if 'require("wandb"' in path.read_text(encoding="utf-8")}
    assert users == {"wandb.py"}


def test_the_top_level_holds_what_a_repository_has_and_nothing_that_a_run_left():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    names = {name.partition("/")[0] for name in listed.stdout.splitlines()}
    files = {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "SECURITY.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
    }
    folders = {"lrptrain", "callbacks", "configs", "tests", "experiments", "docs"}
    dots = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}
    assert names == files | folders | dots | {"mkdocs.yml", "pyproject.toml"}
