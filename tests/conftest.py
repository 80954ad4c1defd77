"""What all tests share."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

NO_SKIPS = "LRPTRAIN_NO_SKIPS"
"""The variable of the job in continuous integration that has what no developer needs."""
ROOT = Path(__file__).parent.parent
# model_zoo, browsing, setting, doc_tables, experiments.sweep
sys.path[:0] = [*(str(ROOT / "tests" / name) for name in ("relevance", "dashboard", "callbacks", "")), str(ROOT)]
OF_TRAINERS = (
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore:Trying to infer the `batch_size` from an ambiguous collection",
    "ignore:Checkpoint directory .* exists and is not empty",
    "ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    "ignore:The number of training batches",
    "ignore:.*pin_memory",
)
"""What trainers warn of, wherever small models are trained."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that train pass over what trainers warn of."""
    for item in items:
        if item.path.parent.name in ("callbacks", "monitor"):
            for message in OF_TRAINERS:
                item.add_marker(pytest.mark.filterwarnings(message))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with oracles and real data beside the project, where there is one."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the oracles and the data in ../shared are not here")
    return folder


# One for all tests of a process: Playwright refuses a second driver beside the first.
@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from browsing import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session", autouse=True)
def warnings_are_errors() -> Iterator[None]:
    """What a training would only log, since it must go on, ends a test that did not expect it."""
    from lrptrain import terminal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "MAY_RAISE", True)
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced_disk() -> Iterator[None]:
    """No test cuts the power, and to wait for the disk after each of ten thousands of small files takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def loosely_packed_pictures() -> Iterator[None]:
    """To pack pictures as tightly as can be takes a fiftieth of the time, and what they show is the same."""
    from PIL import Image

    save = Image.Image.save
    with pytest.MonkeyPatch.context() as patch:
        quick = {"compress_level": 1, "method": 0}
        patch.setattr(Image.Image, "save", lambda self, *to, **options: save(self, *to, **{**options, **quick}))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """See `must_run`; a whole file may be skipped."""
    return must_run((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """See `must_run`."""
    return must_run((yield))


def must_run(report: Any) -> Any:
    """Where nothing may be skipped, a skipped test has failed: else one whose packages no job has would never run."""
    if os.environ.get(NO_SKIPS) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIPS}: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there before the first test, a million objects, stays to the end.

    To look through all of it whenever a test leaves garbage takes a quarter of the time of the tests.
    """
    gc.disable()  # modules that are imported are no garbage
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let libraries take down what is theirs: some count at the end what is left."""
    gc.unfreeze()


# Where a test trains, or starts a process, it takes seconds: these come first, so that only short ones are left when
# one process has nothing to do any more.
LONG = (
    "tests/dashboard/",
    "tests/test_",
    "tests/callbacks/",
    "tests/monitor/",
    "tests/cli/",
    "tests/trainers/",
    "tests/experiments/",
    "tests/fuzz/",
    "tests/loggers/",
)

FORKS = "tests/test_processes"
"""Forks of one process, which imports what they need: the longest of all, so that it is begun first."""
FORKED = (
    "_processes.py", "sharded", "/sharding/", "test_cluster", "test_killed_process", "test_strategy_adapters",
    "test_autograd_functions", "test_every_python_block_runs", "test_a_notebook_runs",
)  # fmt: skip


def scope_of(test: str) -> str:
    """What one process of pytest runs as a whole: a file, whose fixtures are then made once, or several files."""
    file = test.partition("::")[0]
    if file.startswith("tests/dashboard/"):
        return "tests/dashboard/"  # the runs that the page shows are recorded once
    if any(name in test for name in FORKED):
        return FORKS
    return file


@pytest.hookimpl(optionalhook=True)  # only pytest-xdist has it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each scope to the next process that is free, long ones first.

    `--dist loadfile` knows neither scopes of several files nor which are long; the marks of `--dist loadgroup` get
    lost: pytest-xdist 3.8 writes them into a name of the test that pytest 9.2 does not read any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class LongFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            # The queue is ordered by the number of tests already.
            scope = min(self.workqueue, key=lambda each: (each != FORKS, not each.startswith(LONG)))
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return LongFirst(config, log)
