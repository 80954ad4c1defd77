"""The runs that all tests of the page start from, and the browser that looks at them."""

import shutil
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "callbacks")]  # shown, setting


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A folder with the runs `relevance/run` (images) and `relevance/texts`."""
    from shown import images, texts

    folder = tmp_path_factory.mktemp("recorded")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images(folder)
        texts(folder)
    return folder


# For this folder, and not the session: while Playwright is there, no test can run an event loop of its own.
@pytest.fixture(scope="package")
def browser():
    from browsing import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def address(recorded):
    """Where a dashboard serves the recorded runs."""
    from browsing import served

    with served(recorded) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """A page of its own at that address."""
    from browsing import Visit

    visit = Visit(browser, address)
    yield visit
    visit.page.close()


@pytest.fixture
def runs(recorded, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(recorded / "relevance", tmp_path / "relevance"))
