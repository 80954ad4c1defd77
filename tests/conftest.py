"""What all tests share."""

import sys
from pathlib import Path
from typing import Any

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


@pytest.hookimpl(optionalhook=True)  # only pytest-xdist has it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each test to the next process that is free, but those whose fixtures take long to one of them.

    The marks of `--dist loadgroup` would say so, but get lost: pytest-xdist 3.8 writes them into a name of the test
    that pytest 9.2 does not read any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFixture(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith("tests/dashboard/"):
                return "tests/dashboard"  # the runs that the page shows are recorded once
            if "test_every_python_block_runs" in nodeid or "test_a_notebook_runs" in nodeid:
                return "blocks"  # one process imports what they need
            return "processes" if file.endswith("_processes.py") else nodeid  # forks of one process

    return ByFixture(config, log)
