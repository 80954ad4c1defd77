"""The address says what is shown, and what happens meanwhile does not disturb who reads."""

import shutil
from urllib.parse import parse_qs

import pytest
from browsing import Visit, served
from playwright.sync_api import expect

from lrptrain.loggers import read_findings, read_samples

IMAGES, TEXTS = "relevance/run", "relevance/texts"


def fields(page):
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.hash").lstrip("#")).items()}


def test_a_sample_opens_by_its_address_and_closes_by_back(visit):
    page = visit.view("samples", IMAGES, "figure.sample canvas")
    card = page.locator(".gallery button.open").nth(2)
    sample_id = card.get_attribute("data-key").removeprefix("sample-")
    card.click()
    page.wait_for_selector("dialog .strip figure:nth-child(3) canvas")
    assert fields(page) == {"view": "samples", "run": IMAGES, "sample": sample_id}
    names = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert sorted(names) == sorted(set(names))
    page.locator("dialog label", has_text="annotation").click()
    assert not page.is_checked("#sample-mask")
    page.go_back()
    page.locator("dialog").wait_for(state="detached")
    assert fields(page) == {"view": "samples", "run": IMAGES}
    page.go_forward()
    page.wait_for_selector("dialog .large canvas")
    # Esc goes back, too: pressing Back afterwards does not open the sample again.
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.go_back()
    page.wait_for_selector("#runs")
    # What a terminal prints: the run by its last part, and the sample.
    page.goto(f"{visit.address}#run=run&sample={sample_id}")
    page.wait_for_selector("dialog .large canvas")
    page.reload()
    page.wait_for_selector("dialog .large canvas")
    assert page.inner_text("#sample-title") == f"Sample {sample_id}"
    assert page.title() == "run - Samples - lrptrain"
    # The view stays, also for who comes again.
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.reload()
    page.wait_for_selector(".gallery figure")
    assert fields(page) == {"view": "samples", "run": "run"}
    page.goto(f"{visit.address}#run=run&sample=none")
    page.locator("dialog", has_text="There is no sample none").wait_for()
    assert visit.complaints == []


def test_filters_target_and_epoch_are_in_the_address(visit, recorded):
    rows = read_samples(recorded / IMAGES, 1)
    cats = sum(label == "cat" for label in rows["label"])
    page = visit.view("samples", IMAGES, "#count")
    page.select_option("#evaluation", "1")
    page.select_option("#gallery-label", "cat")
    visit.leaves(cats)
    page.select_option("#gallery-target", "predicted")
    page.select_option("#sort", "-label_energy_pointing_game")
    chosen = {"view": "samples", "run": IMAGES, "epoch": "1", "class": "cat", "target": "predicted"}
    assert fields(page) == {**chosen, "sort": "-label_energy_pointing_game"}
    page.wait_for_load_state("networkidle")  # what is asked for when the page is left would count as failed
    page.reload()
    visit.leaves(cats)
    assert page.input_value("#gallery-label") == "cat"
    assert page.input_value("#evaluation") == "1"
    page.go_back()
    page.go_back()
    expect(page.locator("#gallery-target")).to_have_value("label")
    page.go_back()
    visit.leaves(24)
    assert page.input_value("#gallery-label") == ""
    # What nothing here has is shown as such, and not left out in silence.
    visit.view("samples", IMAGES, "main .empty:has-text('No sample is left')", **{"class": "unicorn"})
    page.click("text=Clear the filters")
    visit.leaves(24)
    visit.view("samples", IMAGES, ".notes:has-text('There is no table of epoch 77')", epoch="77")
    assert visit.complaints == []


@pytest.mark.parametrize("text", ["%", "run=%zz&view=%E0%A4%A", "view=constructor", "findings/run", "run=nowhere"])
def test_a_malformed_address_shows_something_and_stays_live(browser, address, text):
    visit = Visit(browser, f"{address}#{text}")
    if text.startswith("run="):
        visit.page.click("text=See all runs")
    visit.page.wait_for_selector("#runs tbody tr")
    visit.page.locator("#status", has_text="2 runs, live").wait_for()
    assert visit.complaints == []
    visit.page.close()


def test_the_verdict_leads_to_its_finding_and_that_to_its_samples(visit, recorded):
    fault = next(each for each in read_findings(recorded / IMAGES) if each.is_fault)
    page = visit.page
    page.locator("#runs tr", has_text="run").locator("a.badge.shortcut").click()
    page.wait_for_selector("article.finding")
    page.click("#view-samples")
    page.locator("#verdict.shortcut", has_text=fault.name).click()
    page.wait_for_selector("article.finding.chosen")
    first = page.locator("article.finding").first
    assert first.get_attribute("class") == "finding shortcut chosen"
    assert fields(page)["finding"] == f"place/shortcut/{fault.name}"
    # An answer leads to the samples that the model gives it to.
    link = first.locator(".by-class a").first
    name = link.inner_text()
    assert name == max(fault.by_class, key=lambda answer: fault.by_class[answer])
    link.click()
    visit.leaves(sum(answer == name for answer in read_samples(recorded / IMAGES, 2)["predicted"]))
    assert fields(page)["predicted"] == name
    assert visit.complaints == []


def test_findings_are_chosen_by_verdict_and_role(visit, recorded):
    findings = read_findings(recorded / IMAGES)
    page = visit.view("findings", IMAGES, "article.finding")
    cards = page.locator("article.finding")
    expect(cards).to_have_count(len(findings))
    page.select_option("#finding-role", "shortcut")
    expect(cards).to_have_count(sum(each.role == "shortcut" for each in findings))
    page.select_option("#finding-verdict", "relies")
    expect(cards).to_have_count(sum(each.is_fault for each in findings))
    assert fields(page) == {"view": "findings", "run": IMAGES, "role": "shortcut", "verdict": "relies"}
    visit.view("findings", IMAGES, ".empty:has-text('No finding is left')", verdict="relies", role="annotation")
    page.click("text=Clear the filters")
    expect(cards).to_have_count(len(findings))
    assert visit.complaints == []


def test_what_arrives_is_drawn_without_disturbing_the_reader(browser, recorded, tmp_path):
    folder = tmp_path / "live"
    shutil.copytree(recorded / IMAGES, folder)
    events = folder / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    last = sorted((folder / "samples").iterdir())[-1]
    table = last.read_bytes()
    last.unlink()
    events.write_bytes(b"".join(lines[:2]))
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        page = visit.view("findings", "live", "article.finding")
        page.locator("article.finding .proof > summary").last.click()
        focused = page.evaluate("document.activeElement.closest('article').dataset.key")
        last.write_bytes(table)
        events.write_bytes(b"".join(lines))
        page.evaluate("update()")  # what the page does every few seconds
        page.locator(".controls", has_text="epoch 2,").wait_for(timeout=15_000)
        places = page.evaluate(
            """() => [document.activeElement.parentElement, document.querySelector("details.proof:not([open])")].map(
                element => [element.className, element.closest("article")?.dataset.key])"""
        )
        assert places == [["proof", focused], ["proof", focused]]
        # With a sample open, the same.
        events.write_bytes(b"".join(lines[:2]))
        last.unlink()
        page.evaluate("update()")
        page.locator(".controls", has_text="epoch 1,").wait_for(timeout=15_000)
        page.locator("button.open").first.click()
        page.wait_for_selector("dialog .strip figure:nth-child(2) canvas")
        last.write_bytes(table)
        events.write_bytes(b"".join(lines))
        page.evaluate("update()")  # what the page does every few seconds
        page.wait_for_selector("dialog .strip figure:nth-child(3) canvas", timeout=15_000)
        page.keyboard.press("Escape")
        page.locator(".controls", has_text="epoch 2,").wait_for(timeout=15_000)
        assert visit.complaints == []
    # The server has ended.
    page.evaluate("update()")
    page.locator("#status.wrong", has_text="does not answer").wait_for(timeout=15_000)
    page.click("#view-samples")
    page.locator("main .problem").wait_for()
    assert [
        complaint
        for complaint in visit.complaints
        if not complaint.startswith(("error: Failed to load resource", "failed:"))
    ] == []
    page.close()
