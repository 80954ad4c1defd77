"""What is said of a run in a word: a shortcut, what a person has to judge, what was only removed, a collapse."""

from typing import Any

import pytest
from browsing import Visit, served
from examples import finding

from lrptrain.findings import OVERALL, Evidence
from lrptrain.loggers import EpochRecord, write_record

MOVED = Evidence(0.6, (0.5, 0.7), 0.02, 0.001, 32)
COLLAPSED = {"tells": False, "collapsed": True, "text": "COLLAPSED: one answer."}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shortcut": ({"state": "confirmed", "intervention": MOVED}, {}),
    "to judge": (
        {"state": "confirmed", "kind": "reliance_on_statistics", "intervention": MOVED, "relevance": None},
        {},
    ),
    "unconfirmed": ({"state": "unconfirmed", "kind": "focus_at_position", "where": "a corner (1 of 9 patches)"}, {}),
    "collapsed": ({"state": "confirmed", "intervention": MOVED}, COLLAPSED),
}


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    for name, (changes, power) in RUNS.items():
        fact = finding(scope=OVERALL, **changes)
        write_record(folder / name, EpochRecord(0, 0, findings=[fact], new_findings=[fact], power=power))
    with served(folder) as address:
        visit = Visit(browser, address)
        visit.page.wait_for_selector("#runs tbody tr")
        yield visit.page
        assert visit.complaints == []
        visit.page.close()


def test_each_run_has_its_word(page):
    words = {
        row.locator("td a").first.inner_text(): row.locator("a.badge").inner_text()
        for row in page.locator("#runs tbody tr").all()
    }
    assert words == {name: name for name in RUNS}


def test_only_what_is_a_fault_for_sure_is_red(page):
    colours = {
        row.locator("td a").first.inner_text(): row.locator("a.badge").evaluate(
            "badge => getComputedStyle(badge).color"
        )
        for row in page.locator("#runs tbody tr").all()
    }
    assert colours["shortcut"] == colours["collapsed"]
    assert len({colours[name] for name in ("shortcut", "to judge", "unconfirmed")}) == 3
