"""The runs that all tests of the page start from."""

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


@pytest.fixture(scope="session")
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
