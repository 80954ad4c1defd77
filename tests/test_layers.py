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
ENGINE = {"torch", "numpy", "jaxtyping", *sys.stdlib_module_names}
FILES = sorted((ROOT / "lrptrain" / "relevance").rglob("*.py"))


def test_the_engine_loads_no_heavy_library():
    code = f"import sys, lrptrain.relevance; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def imported(tree: ast.AST) -> set[str]:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    origins = [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {*names, *origins}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_engine_imports_only_torch_numpy_and_itself(file):
    for name in imported(ast.parse(file.read_text())):
        assert name.split(".")[0] in ENGINE or name.startswith("lrptrain.relevance"), name
