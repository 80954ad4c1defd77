"""What is found by itself has a test of its own: nothing else would miss it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOUND = ("auditing/checks", "cues/visual", "guidance/losses", "loggers")


@pytest.mark.parametrize("folder", FOUND)
def test_every_file_of_a_folder_whose_files_are_found_by_themselves_has_a_mirrored_test(folder):
    files = [path for path in (ROOT / "lrptrain" / folder).glob("*.py") if path.stem != "__init__"]
    names = {path.stem for path in files if not _holds_data_alone(path)}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / folder).glob("test_*.py")}
    assert names
    assert names <= tests


def _holds_data_alone(path):
    classes = (ast.Import, ast.ImportFrom, ast.ClassDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body[1:]
    return all(isinstance(node, classes) for node in body) and "def " not in path.read_text(encoding="utf-8")
