"""What is said of a run in a word: a shortcut, what a person has to judge, what was only removed, a collapse."""

from typing import Any

import pytest
from browsing import Visit, served
from examples import finding

from lrptrain.findings import OVERALL, Evidence, Finding
from lrptrain.loggers import EpochRecord, write_record

MOVED = Evidence(0.6, (0.5, 0.7), 0.02, 0.001, 32)
COLLAPSED = {"tells": False, "collapsed": True, "text": "COLLAPSED: one answer."}
TELLS = {"tells": True, "text": "Looked for: much."}
HINT = "The answers can be guessed from colours alone: should these decide?"
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shortcut": ({"state": "confirmed", "intervention": MOVED}, {}),
    "to judge": (
        {"state": "confirmed", "kind": "reliance_on_statistics", "intervention": MOVED, "relevance": None},
        {},
    ),
    "unconfirmed": ({"state": "unconfirmed", "kind": "focus_at_position", "where": "a corner (1 of 9 patches)"}, {}),
    "collapsed": ({"state": "confirmed", "intervention": MOVED}, COLLAPSED),
}
PLACE = {"state": "unconfirmed", "kind": "focus_at_position", "where": "a corner (1 of 9 patches)"}
UNKNOWN = "\N{EN DASH}"
# By name: facts and power of runs with a hint.
QUIET_RUNS: dict[str, tuple[list[Finding], dict[str, Any]]] = {
    "a hint": ([], TELLS),
    "a hint, and unconfirmed": ([finding(scope=OVERALL, **PLACE)], TELLS),
    UNKNOWN: ([], {"tells": False, "text": "That says nothing yet."}),
}

# By whose weights the evaluation at epoch 4 and step 20 is of.
KEPT_RUNS = {"up to epoch 4": (4, 20), "in the kept weights (epoch 1)": (1, 5), "in the kept weights": (None, None)}


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    for name, (changes, power) in RUNS.items():
        fact = finding(scope=OVERALL, **changes)
        write_record(folder / name, EpochRecord(0, 0, findings=[fact], new_findings=[fact], power=power))
    for name, (facts, power) in QUIET_RUNS.items():
        write_record(folder / name, EpochRecord(0, 0, findings=facts, power=power, hints=HINT))
    write_record(folder / "none found", EpochRecord(0, 0, power=TELLS))
    for name, weights in KEPT_RUNS.items():
        scalars = {"relevance/samples": 32.0}
        write_record(folder / name, EpochRecord(4, 20, scalars, power=TELLS, weights=weights))
    with served(folder) as address:
        visit = Visit(browser, address)
        visit.page.wait_for_selector("#runs tbody tr")
        yield visit
        assert visit.complaints == []
        visit.page.close()


def test_each_run_has_its_word(visit):
    words = {
        row.locator("td[data-title=run]").inner_text(): row.locator("a.badge").inner_text()
        for row in visit.view("runs", wait="#runs tbody tr").locator("#runs tbody tr").all()
    }
    names = [*RUNS, *QUIET_RUNS, "none found"]
    expected = {name: "a hint" if "a hint" in name else name for name in names}
    assert words == expected | dict.fromkeys(KEPT_RUNS, "none found")


def test_only_what_is_a_fault_for_sure_is_red(visit):
    page = visit.view("runs", wait="#runs tbody tr")
    colours = {
        row.locator("td[data-title=run]").inner_text(): row.locator("a.badge").evaluate(
            "badge => getComputedStyle(badge).color"
        )
        for row in page.locator("#runs tbody tr").all()
    }
    assert colours["shortcut"] == colours["collapsed"]
    assert len({colours[name] for name in ("shortcut", "to judge", "unconfirmed", "none found")}) == 4
    assert colours["a hint"] == colours["to judge"]  # amber: a person has to look


def test_a_hint_is_said_in_an_amber_frame(visit):
    frame = visit.view("findings", "a hint", "#verdict.hint").locator("#verdict")
    assert frame.inner_text() == f"No shortcut was found up to epoch 0, but there is a hint: {HINT} Looked for: much."
    amber = visit.page.evaluate("getComputedStyle(document.querySelector('#verdict')).borderLeftColor")
    visit.view("findings", "none found", "#verdict.none")
    green = visit.page.evaluate("getComputedStyle(document.querySelector('#verdict')).borderLeftColor")
    assert amber != green
    assert visit.page.inner_text("#verdict") == "No shortcut was found up to epoch 0. Looked for: much."
    text = visit.view("findings", "a hint, and unconfirmed", "#verdict.hint").inner_text("#verdict")
    assert text.startswith(f"No shortcut was confirmed up to epoch 0, but there is a hint: {HINT} Not confirmed by")
    badge = visit.view("runs", wait="#runs tbody tr").locator("#runs a.badge.hint").first
    assert HINT in badge.get_attribute("title")


@pytest.mark.parametrize("run", KEPT_RUNS)
def test_a_verdict_says_on_which_weights_and_how_many_samples_it_rests(visit, run):
    text = visit.view("findings", run, "#verdict.none").inner_text("#verdict")
    assert text == f"No shortcut was found {run}, on 32 samples. Looked for: much."


def test_a_model_that_tells_nothing_yet_gives_no_hint(visit):
    assert HINT not in visit.view("findings", UNKNOWN, "#verdict.unknown").inner_text("#verdict")
