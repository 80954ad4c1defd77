"""What chooses samples and runs in the browser: plots, the table of runs, runs beside each other."""

import json
import re
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from browsing import Visit, served
from sklearn.metrics import confusion_matrix

from lrptrain.dashboard.report import write_html_report
from lrptrain.loggers import EpochRecord, write_record

SAMPLES = 48
CLASSES = ["ant", "bee", "cat"]
LABEL = np.arange(SAMPLES) % 3
PREDICTED = np.where(np.arange(SAMPLES) % 5 == 0, (LABEL + 1) % 3, LABEL)
SCORE = np.round(np.random.default_rng(0).beta(2, 3, SAMPLES), 4)


def write(folder, label, predicted, names, hyperparameters, maps=None):
    columns = {
        "sample_id": list(range(len(label))),
        "label": [names[i] for i in label],
        "predicted": [names[i] for i in predicted],
        "probability": np.resize(SCORE, len(label)).tolist(),
    }
    for epoch in range(2 if maps is not None else 1):
        samples = {**columns, **({"map_label": maps.tolist()} if maps is not None else {})}
        per_class = {f"relevance/label/energy_pointing_game_per_class/{name}": 0.5 for name in names}
        scalars = {"relevance/reliance": 0.5, **per_class}
        write_record(folder, EpochRecord(epoch, epoch, scalars=scalars, samples=samples))
    settings = {"class_names": names, "method": "attnlrp", "hyperparameters": hyperparameters}
    (folder / "run.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three small runs, in which a map has its relevance in one of three corners, and one of 300 classes."""
    root = tmp_path_factory.mktemp("explored")
    maps = np.random.default_rng(1).uniform(0, 0.01, (SAMPLES, 6, 6))
    for number in range(SAMPLES):
        row, column = [(0, 0), (0, 4), (4, 0)][number % 3]
        maps[number, row : row + 2, column : column + 2] += 1.0
    for name, rate in (("low", 0.001), ("middle", 0.01), ("top", 0.1)):
        write(root / name, LABEL, PREDICTED, CLASSES, {"lr": rate, "depth": 12}, maps.reshape(SAMPLES, 36))
    many = np.arange(900) % 300
    write(root / "wide", many, many, [f"Class {i}" for i in range(300)], {})
    return root


@pytest.fixture(scope="module")
def visit(browser, folder):
    with served(folder) as address:
        visit = Visit(browser, address, viewport={"width": 1280, "height": 1000})
        yield visit
        assert visit.complaints == []
        visit.page.close()


def samples(visit, more="", run="low"):
    visit.page.goto(f"{visit.address}#view=samples&run={run}{more}")
    visit.page.wait_for_selector(f'#view[data-shown="samples/{run}"]')
    visit.page.wait_for_selector("#count")
    visit.unfold()
    return visit.page


def asked(page):
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()}


@pytest.mark.parametrize("kind", ["share", "wide", "negative", "whole", "equal", "edges"])
def test_bars_are_numpys_histogram_with_round_edges(visit, kind):
    rng = np.random.default_rng(3)
    values = {
        "share": rng.random(500),
        "wide": rng.lognormal(0, 4, 300),
        "negative": rng.normal(-3, 1e-3, 200),
        "whole": rng.integers(0, 9, 100).astype(float),
        "equal": np.full(5, 0.25),
        "edges": np.arange(-3, 28) / 10,  # all on edges, which no division may round away from
    }[kind]
    with_a_gap = [*values.tolist(), None]
    edges, counts = visit.page.evaluate(
        "values => [binEdges(values), histogramOf(values, binEdges(values))]", with_a_gap
    )
    np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
    assert sum(counts) == len(values)
    assert len(counts) <= 33
    assert edges == [float(f"{edge:.12g}") for edge in edges]  # as the address has them


def test_cells_are_the_confusion_matrix(visit):
    names = [CLASSES[i] for i in LABEL]
    read = [CLASSES[i] for i in PREDICTED]
    pairs = visit.page.evaluate(
        "([label, read]) => [...confusionOf(label, read).pairs].map(([name, row]) => [name, Object.fromEntries(row)])",
        [[*names, "?", None], [*read, "ant", "ant"]],
    )
    expected = confusion_matrix(names, read, labels=CLASSES)
    rows = dict(pairs)
    assert set(rows) == set(CLASSES)  # what has no label has no row
    assert [[rows[label].get(other, 0) for other in CLASSES] for label in CLASSES] == expected.tolist()
    page = samples(visit)
    page.wait_for_selector("#confusion")
    cells = page.locator("#confusion tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => Number(cell.textContent)))"
    )
    assert cells == expected.tolist()


def test_a_brush_over_the_histogram_is_a_filter_that_the_address_keeps(visit):
    page = samples(visit)
    box = page.locator("svg.histogram").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50, steps=3)
    page.mouse.up()
    page.wait_for_selector("#histogram-clear")
    bounds = asked(page)
    inside = (float(bounds["from"]) <= SCORE) & (float(bounds["to"]) >= SCORE)
    assert 0 < inside.sum() < SAMPLES
    assert bounds["score"] == "probability"
    visit.leaves(inside.sum())
    # The bars outside of the range stay; the matrix counts what is left.
    assert page.locator("svg.histogram rect.outside").count() > 0
    wrong = (LABEL != PREDICTED)[inside].sum()
    assert f"{wrong} of {inside.sum()} misclassified" in page.inner_text(".plot-of-confusion")
    page.reload()
    visit.leaves(inside.sum())
    page.click("#histogram-clear")
    visit.leaves(SAMPLES)
    page.go_back()
    visit.leaves(inside.sum())


def test_a_cell_of_the_matrix_is_a_filter(visit):
    page = samples(visit)
    matrix = confusion_matrix(LABEL, PREDICTED)
    page.get_by_role("button", name=f"bee predicted as cat: {matrix[1, 2]} samples").click()
    visit.leaves(matrix[1, 2])
    assert {"class": "bee", "predicted": "cat"}.items() <= asked(page).items()
    expected = np.histogram(SCORE[(LABEL == 1) & (PREDICTED == 2)])[0].sum()
    assert f"{expected} samples from" in page.get_attribute("svg.histogram", "aria-label")
    page.locator("#confusion button[aria-pressed=true]").click()
    visit.leaves(SAMPLES)


def test_arrow_keys_go_through_the_gallery_in_its_order(visit):
    page = samples(visit, "&sort=-probability&class=bee&sample=")
    mine = np.flatnonzero(LABEL == 1)
    order = mine[np.argsort(-SCORE[mine], kind="stable")]
    page.locator(".gallery button.open").first.click()
    title = page.locator("dialog h2")
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowLeft", 0), ("ArrowLeft", 0)):
        page.keyboard.press(key)
        title.filter(has_text=re.compile(f"^Sample {order[place]}$")).wait_for()
    assert f"1 of {len(mine)}" in page.inner_text("dialog .steps")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert "sample" not in asked(page)


def test_many_classes_are_found_by_typing(visit):
    page = samples(visit, run="wide")
    options = page.locator("#gallery-label-list option")
    options.nth(299).wait_for(state="attached")  # the view of the run before has a count, too
    assert options.count() == 300
    page.fill("#gallery-label", "class 77")  # any case
    visit.leaves(3)
    page.fill("#gallery-label", "299")
    page.press("#gallery-label", "Enter")
    visit.leaves(3)
    assert asked(page)["class"] == "Class 299"
    page.fill("#gallery-label", "nobody")
    assert page.get_attribute("#gallery-label", "aria-invalid") == "true"
    page.fill("#gallery-label", "")
    visit.leaves(900)
    assert page.locator("#confusion tbody tr").count() == 20
    assert "20 of 300 classes" in page.inner_text(".plot-of-confusion")


def names_listed(page):
    return page.locator("#runs tbody tr button.link").all_inner_texts()


def test_runs_are_sorted_searched_and_drawn(visit):
    page = visit.page
    page.goto(f"{visit.address}#view=runs")
    page.wait_for_selector("#runs tbody tr:nth-child(4)")
    heads = page.locator("#runs thead th").all_inner_texts()
    assert "lr" in heads
    assert "depth" not in heads  # the same in all
    page.click("#sort-h\\.lr")
    assert names_listed(page) == ["top", "middle", "low", "wide"]
    page.click("#sort-h\\.lr")
    assert names_listed(page) == ["low", "middle", "top", "wide"]  # what has no value comes last in either direction
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("lr")
    page.fill("#run-search", "lr=0.01")
    assert names_listed(page) == ["middle"]
    page.click("#draw-these")
    assert page.evaluate("shownRuns()") == ["middle"]
    page.fill("#run-search", "")
    assert page.locator("#runs input:checked").count() == 1
    page.click("#draw-all")
    assert page.evaluate("shownRuns().length") == 4
    page.click("#draw-none")
    page.get_by_text("No run is drawn").first.wait_for()
    page.click("#draw-all")
    lines = "#view .panels .panel:first-child svg .mark-line path"
    page.locator(lines).nth(3).wait_for(state="attached")
    page.locator("#runs tbody tr").nth(1).hover()
    page.locator(f"{lines}[opacity='0.12']").nth(2).wait_for(state="attached")
    assert page.locator(f"{lines}[opacity='1']").count() == 1


def test_runs_stand_beside_each_other(visit):
    page = samples(visit, "&run=top&run=nobody&run=wide&plots=none")
    row = page.locator(".beside-row").nth(4)
    row.wait_for()
    assert row.locator(".run-name").all_inner_texts() == ["low, epoch 1", "top, epoch 1", "wide, epoch 0"]
    assert row.locator("canvas").count() == 2
    assert "not in this run" in row.locator(".in-run").nth(2).inner_text()  # its sample 4 is another one
    page.get_by_role("button", name="Take wide away").click()
    row.locator(".in-run").nth(2).wait_for(state="detached")
    page.select_option("#beside", "middle")
    row.locator("canvas").nth(2).wait_for()


def test_runs_beside_each_other_say_their_epochs(visit):
    page = visit.view(
        "samples", ["low", "middle", "wide"], ".notes:has-text('wide: There is no table of epoch 1')", epoch="1"
    )
    names = page.locator(".beside-row").first.locator(".run-name").all_inner_texts()
    assert names == ["low, epoch 1", "middle, epoch 1", "wide, epoch 0"]


def test_samples_without_a_label_are_neither_right_nor_wrong(visit, tmp_path):
    # Twelve have none; of the other twelve, four are misclassified. All have one score.
    labels = ["?"] * 12 + ["ant"] * 12
    places = np.arange(24) % 3
    samples: dict[str, list[Any]] = {
        "sample_id": list(range(24)),
        "label": labels,
        "predicted": ["ant", "bee", "ant"] * 8,
        "probability": [0.92] * 24,
        "map_label": [np.eye(4)[place].tolist() for place in places],
    }
    power = {"tells": False, "text": "That says nothing yet."}
    write_record(tmp_path / "run", EpochRecord(0, 0, samples=samples, power=power))
    with served(tmp_path) as address:
        at_chance = Visit(visit.page.context.browser, address, viewport={"width": 1280, "height": 900})
        page = at_chance.view("samples", "run", "#confusion", plots="scores confusion")
        assert page.locator("#verdict.unknown").inner_text() == "No verdict up to epoch 0. That says nothing yet."
        assert "4 of 12 misclassified" in page.inner_text("section.plot-of-confusion")
        assert "right, or without a label" in page.inner_text("section.plot-of-scores")
        assert page.locator("svg.histogram text").all_text_contents() == ["24", "0", "0.92"]
        for reading, left in (("wrong", 4), ("right", 8)):
            at_chance.view("samples", "run", "#count", reading=reading)
            at_chance.leaves(left)
        assert at_chance.complaints == []
        page.close()


def test_a_report_has_them_too(visit, folder, tmp_path):
    write_html_report(folder / "low", tmp_path / "report.html")
    page = visit.page.context.browser.new_page()
    page.goto(f"{(tmp_path / 'report.html').as_uri()}#view=samples&plots=scores+confusion&class=bee")
    page.wait_for_selector("svg.histogram")
    page.wait_for_selector("#confusion")
    assert page.inner_text("#count").startswith("16 samples of 48")
    page.close()


@pytest.mark.parametrize(("without", "listed"), [("wide", len(CLASSES)), ("low", 0)])
def test_scores_of_many_classes_do_not_bury_the_others(visit, without, listed):
    page = visit.view("runs", wait="#score", without=without)
    page.locator("#score-class-list option, #score-class option").first.wait_for(state="attached")
    texts = page.locator("#score option").all_inner_texts()
    assert sum("per_class" in text for text in texts) == listed
    assert any("reliance" in text for text in texts)
