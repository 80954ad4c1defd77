"""What all tests share."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# model_zoo, doc_tables, experiments.sweep
sys.path[:0] = [str(ROOT / "tests" / "relevance"), str(ROOT / "tests"), str(ROOT)]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with oracles and real data beside the project, where there is one."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the oracles and the data in ../shared are not here")
    return folder
