"""What is said of a run in a word: a shortcut, a doubt, what the model reads, a collapse; and what its page shows."""

import math
import re
from typing import Any

import inspected
import pytest
import torch
from browsing import Visit, served
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding
from setting import loader
from shown import reader_of_a_corner
from torch.nn import functional as F

import lrptrain
from lrptrain.findings import Finding
from lrptrain.loggers import EpochRecord, write_record

COLLAPSED = {"tells": False, "collapsed": True, "text": "COLLAPSED: one answer."}
CHANCE = {"tells": False, "text": "That says nothing yet."}
TESTED = {"tells": True, "text": "It does not rely on these alone: much."}
MILDER = finding(name="a mark", effect=0.2, interval=(0.1, 0.3))
DOUBTS = [finding(name=name, verdict="inconclusive", interval=(0.0, 0.2)) for name in ("a", "b", "c", "d", "e")]
READS = "0 shortcuts; 1 needs review: the colours of the image."
NONE = "No shortcut found up to epoch 0."
# By name: the word, findings, what was tested, and the banner.
RUNS: dict[str, tuple[str, list[Finding], dict[str, Any], str]] = {
    "a fault": (
        "shortcut", [OPEN, INCONCLUSIVE, finding()], TESTED, "SHORTCUT: the model relies on the top left corner.",
    ),
    "two faults": (
        "shortcut", [finding(), MILDER], TESTED | {"headline": "2 shortcuts."},
        "SHORTCUT: the model relies on the top left corner. 2 shortcuts.",
    ),
    "a doubt": (
        "inconclusive", [OPEN, INCONCLUSIVE], TESTED,
        f"Inconclusive: the model may rely on the border, up to epoch 0. {TESTED['text']}",
    ),
    "doubts": (
        "inconclusive", DOUBTS, {}, "Inconclusive: the model may rely on a, b, c and 2 more, up to epoch 0.",
    ),
    "unreviewed": (
        "needs review",
        [ENDED, EVIDENCE, OPEN],
        TESTED | {"headline": READS},
        f"{READS} {NONE} {TESTED['text']}",
    ),
    "evidence": ("no shortcut found", [EVIDENCE], TESTED, f"{NONE} {TESTED['text']}"),
    "clean": ("no shortcut found", [], TESTED, f"{NONE} {TESTED['text']}"),
    "ended": ("no shortcut found", [ENDED], TESTED, f"{NONE} {TESTED['text']}"),
    "chance": ("no verdict", [OPEN, INCONCLUSIVE], CHANCE, f"No verdict up to epoch 0. {CHANCE['text']}"),
    "collapsed": ("collapsed", [finding()], COLLAPSED, "COLLAPSED: one answer."),
}  # fmt: skip
# By whose weights the evaluation at epoch 4 and step 20 is of.
KEPT_RUNS = {
    "up to epoch 4": (4, 20),
    "in the kept checkpoint (epoch 1)": (1, 5),
    "in the kept checkpoint": (None, None),
}
SHOWN = finding(
    name="<b>mark</b>",
    by_class={"cat": 0.75, "dog": -0.01, "owl": 0.5},
    also_relies_on=("the border",),
    note="A note.",
    history=(0.1, math.nan, 0.4),
    verdicts=("inconclusive", "inconclusive", "relies"),
    epochs=(0, 1, 2),
    first_epoch=0,
    epoch=2,
)


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    for name, (_, findings, power, _) in RUNS.items():
        write_record(folder / name, EpochRecord(0, 0, findings=findings, power=power))
    for name, weights in KEPT_RUNS.items():
        scalars = {"relevance/samples": 32.0}
        write_record(folder / name, EpochRecord(4, 20, scalars, power=TESTED, weights=weights))
    write_record(folder / "shown", EpochRecord(2, 2, findings=[SHOWN, ENDED]))
    with served(folder) as address:
        visit = Visit(browser, address)
        visit.page.wait_for_selector("#runs tbody tr")
        yield visit
        assert visit.complaints == []
        visit.page.close()


def findings_of(visit, run, wait):
    return visit.view("findings", run, wait)


def badges(visit, read):
    rows = visit.view("runs", wait="#runs tbody tr").locator("#runs tbody tr").all()
    return {row.locator("td[data-title=run]").inner_text(): read(row.locator("a.badge")) for row in rows}


def test_each_run_has_its_word(visit):
    expected = {name: word for name, (word, *_) in RUNS.items()} | dict.fromkeys(KEPT_RUNS, "no shortcut found")
    assert badges(visit, lambda badge: badge.inner_text()) == expected | {"shown": "shortcut"}


def test_only_a_fault_and_a_collapse_are_red(visit):
    colours = badges(visit, lambda badge: badge.evaluate("badge => getComputedStyle(badge).borderColor"))
    red = {name for name, colour in colours.items() if colour == colours["a fault"]}
    assert red == {"a fault", "two faults", "collapsed", "shown"}
    assert len({colours[name] for name in ("a fault", "a doubt", "unreviewed", "clean", "chance")}) == 5


def test_a_badge_is_filled_as_far_as_the_effect_goes(visit):
    filled = badges(visit, lambda badge: badge.evaluate("badge => badge.style.getPropertyValue('--effect')"))
    assert (filled["a fault"], filled["clean"], filled["chance"]) == ("40%", "", "")


def test_the_gravest_run_stands_first(visit):
    order = list(badges(visit, lambda badge: badge.inner_text()).values())
    words = ["shortcut", "collapsed", "inconclusive", "needs review", "no shortcut found", "no verdict"]
    assert order == sorted(order, key=words.index)


@pytest.mark.parametrize("run", RUNS)
def test_the_banner_says_the_gravest(visit, run):
    # Where the findings are listed, the first of them says it.
    assert visit.view("samples", run, "#verdict").inner_text("#verdict") == RUNS[run][-1]


@pytest.mark.parametrize("run", KEPT_RUNS)
def test_a_verdict_says_on_which_weights_and_how_many_samples_it_rests(visit, run):
    text = findings_of(visit, run, "#verdict.none").inner_text("#verdict")
    assert text == f"No shortcut found {run}, on 32 samples. {TESTED['text']}"


def test_the_gravest_finding_stands_first(visit):
    page = findings_of(visit, "a fault", "article.finding")
    words = page.locator("article .badge").all_inner_texts()
    assert words == ["shortcut", "needs review", "inconclusive"]
    page = findings_of(visit, "unreviewed", "article.finding")
    assert page.locator("article .badge").all_inner_texts() == ["needs review", "annotation", "does not rely"]


def test_the_verdict_is_said_once(visit):
    for run, name in (
        ("a fault", "the top left corner"),
        ("a doubt", "the border"),
        ("unreviewed", "the colours of the image"),
    ):
        said = findings_of(visit, run, "article.finding").locator("#view").inner_text()
        assert len(re.findall(rf"model (?:relies|may rely) on {name}", said)) == 1, run
    assert f"{NONE} {TESTED['text']}" in said


def test_a_card_shows_the_evidence(visit):
    page = findings_of(visit, "shown", "article.finding")
    card, ended = page.locator("article.finding").all()
    said = card.inner_text()
    for text in (
        "The model relies on <b>mark</b>.",
        "40 points of effect",
        "30 to 50 points; 24 images",
        "50 % of the relevance is there",
        "its area is 6 %",
        "Since epoch 0.",
        "That is 40 of the 50 points of everything outside the annotation.",
        "The model also relies on the border.",
        "A note.",
        'Fix: RelevanceGuidance("swap")',
        "inconclusive from epoch 0, relies from epoch 2",
        "#17",
    ):
        assert text in said
    assert card.locator(".by-class a").all_inner_texts() == ["cat", "owl", "dog"]
    assert card.locator(".by-class span").all_inner_texts() == ["75", "50", "-1"]
    assert card.locator("svg.curve title").text_content() == "from 0.10 to 0.40 in 3 evaluations"
    scale = card.locator("svg.bar title").first.text_content()
    assert scale == "0.40, from 0.30 to 0.50, on a scale from 0 to 1"
    assert "The model relied on it until epoch 1." in ended.inner_text()
    assert "Fix" not in ended.inner_text()


def test_the_code_that_fixes_it_runs_with_a_model_and_its_data(browser, tmp_path):
    net, columns = reader_of_a_corner(), inspected.images("corner", count=24)
    weight = net.get_submodule("head").weight
    optimizer = torch.optim.SGD([weight], 0.1)
    batch = {name: values[:8] for name, values in columns.items()}
    scope: dict[str, Any] = {"model": net, "validation_loader": loader(columns), "batch": batch, "optimizer": optimizer}
    scope["loss_of"] = lambda model, batch: F.cross_entropy(model(batch["image"]), batch["label"])
    # As the model's own report calls it, which the code looks for.
    name = lrptrain.inspect(net, loader(columns)).faults[0].name
    fix = f'RelevanceGuidance("swap", swap=monitor["{name}"])'
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("outside", {}),
        ("a fault", {"fix": fix}),
        ("unreviewed", {"role": "unreviewed", "fix": f"{fix[:-1]}, optimizer=optimizer)"}),
        ("two", {"fix": fix.replace("swap=", "swap=[").replace("])", "]])")}),
    ]
    for kind, changes in kinds:
        write_record(tmp_path / kind, EpochRecord(0, 0, findings=[finding(name=name, **changes)]))
        with served(tmp_path) as address:
            page = findings_of(Visit(browser, address), kind, "article.finding")
            code = page.locator("details.next pre").text_content()
            page.close()
        weight.grad = None
        # Without the line for a Trainer, which this loop has not.
        exec("\n".join(line for line in code.splitlines() if "lrptrain.guide(" not in line), scope)
        assert (f'swap=report["{name}"]' in code.replace("[report", "report")) == (kind != "outside")
        assert weight.grad.abs().sum() > 0, kind
