"""What people write on the page stays in the run's folder, and goes into the report."""

import fcntl
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from browsing import Visit, served
from playwright.sync_api import expect

from lrptrain.dashboard import notes
from lrptrain.dashboard.notes import LONGEST, read_notes, write_note
from lrptrain.dashboard.report import write_html_report
from lrptrain.loggers import read_samples


def test_notes_are_kept_replaced_and_taken_away(tmp_path):
    write_note(tmp_path, "samples", "3/ü", "blurred #mislabelled")
    write_note(tmp_path, "views", "cats", "#class=cat")
    write_note(tmp_path, "samples", "4", "fine")
    write_note(tmp_path, "samples", "4", "")
    write_note(tmp_path, "samples", "3/ü", "sharp")
    assert read_notes(tmp_path) == {"samples": {"3/ü": "sharp"}, "views": {"cats": "#class=cat"}, "notes": []}


WRITER = """
import sys
from pathlib import Path
from lrptrain.dashboard.notes import write_note
for number in range(100):
    write_note(Path(sys.argv[1]), "samples", f"{sys.argv[2]} {number}", "seen")
"""


def test_two_pages_on_one_folder_lose_no_note(tmp_path):
    pages = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [page.wait() for page in pages] == [0, 0]
    assert len(read_notes(tmp_path)["samples"]) == 200


def test_a_folder_that_another_program_holds_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "WAIT", 0.1)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(OSError, match="another program holds"):
        write_note(tmp_path, "samples", "1", "seen")
    os.close(held)
    write_note(tmp_path, "samples", "1", "seen")


@pytest.mark.parametrize("place", ["notes.json", "notes.json.part"])
@pytest.mark.parametrize("make", ["link", "dangling link", "pipe"])
def test_a_note_in_the_folder_of_somebody_else_stays_in_it(tmp_path, place, make):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    if make == "link":
        outside.write_text("{}", encoding="utf-8")
    if make == "pipe":
        os.mkfifo(folder / place)
    else:
        (folder / place).symlink_to(outside)
    try:
        write_note(folder, "samples", "1", "seen")
    except (OSError, ValueError):
        assert place == "notes.json"
    assert not outside.exists() or outside.read_text(encoding="utf-8") == "{}"


@pytest.mark.parametrize(
    ("kind", "name", "text"), [("other", "a", "b"), ("views", "", "b"), ("views", "a", "b" * 2001)]
)
def test_what_is_no_note_is_refused(tmp_path, kind, name, text):
    assert LONGEST == 2000
    with pytest.raises(ValueError, match="a note is one of samples, views"):
        write_note(tmp_path, kind, name, text)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_said_and_not_written_over(tmp_path):
    (tmp_path / "notes.json").write_text("{", encoding="utf-8")
    assert "notes.json cannot be read" in read_notes(tmp_path)["notes"][0]
    with pytest.raises(ValueError, match=r"notes\.json cannot be read"):
        write_note(tmp_path, "views", "a", "b")
    assert (tmp_path / "notes.json").read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize("content", ['{"samples": [1], "views": {"a": 1, "b": "#"}}', '{"mine": 1}', "[1]"])
def test_what_others_keep_in_the_file_is_said_and_not_written_over(tmp_path, content):
    (tmp_path / "notes.json").write_text(content, encoding="utf-8")
    found = read_notes(tmp_path)
    assert found["views"] == ({"b": "#"} if "#" in content else {})
    assert "notes.json" in found["notes"][0]
    with pytest.raises(ValueError, match=r"notes\.json"):
        write_note(tmp_path, "views", "a", "b")
    assert (tmp_path / "notes.json").read_text(encoding="utf-8") == content


def posted(address, body, kind="application/json", **headers):
    request = urllib.request.Request(
        f"{address}api/note?run=run", body.encode(), {"Content-Type": kind, **headers}, method="POST"
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_only_a_page_of_this_server_writes_and_only_into_runs(runs):
    note = {"kind": "samples", "name": "1", "text": "seen"}
    with served(runs) as address:
        # What a page elsewhere can send without being asked: a form, a text.
        assert posted(address, json.dumps(note), "text/plain") == 415
        assert posted(address, json.dumps(note), "application/x-www-form-urlencoded") == 415
        assert posted(address, json.dumps(note | {"kind": "../x"})) == 409
        assert posted(address, "[" * 20_000) == posted(address, json.dumps(note | {"text": None})) == 409
        assert posted(address, "[]") == posted(address, "{") == posted(address, '{"kind": 1}') == 409
        assert posted(address, json.dumps(note | {"text": "a" * 99_999})) == 409
        assert not (runs / "run" / "notes.json").exists()
        assert posted(address, json.dumps(note), "application/json; charset=utf-8") == 200
    assert read_notes(runs / "run")["samples"] == {"1": "seen"}


def test_a_note_is_written_found_by_its_tag_and_saved_as_a_view(browser, runs):
    ids = read_samples(runs / "run", 2)["sample_id"]
    with served(runs) as address:
        visit = Visit(browser, address)
        page = visit.view("samples", "run", "#count", sample=str(ids[2]))
        page.fill("#note", "blurred #check")
        page.keyboard.press("Enter")
        page.locator("#found .note", has_text="blurred #check").wait_for(state="attached")
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")
        visit.unfold()
        assert page.locator("#tags option").evaluate_all("all => all.map(one => one.value)") == ["#check"]
        page.fill("#gallery-note", "#CHECK")
        visit.leaves(1)
        page.fill("#view-name", "to <b>check</b>")
        page.click("#save-view")
        page.locator("#saved-views a", has_text="to <b>check</b>").wait_for()
        page.goto(f"{address}#view=samples&run=run")
        visit.leaves(24)
        visit.unfold()
        page.click("#saved-views a")
        visit.leaves(1)
        assert visit.complaints == []
        page.close()
    assert read_notes(runs / "run")["views"] == {"to <b>check</b>": "#view=samples&note=%23CHECK"}
    # The report shows what was written, and writes nothing.
    output = runs.parent / "report.html"
    write_html_report(runs / "run", output)
    visit = Visit(browser, output.as_uri())
    page = visit.view("samples", "run", "#found .note")
    visit.unfold()
    expect(page.locator("#save-view")).to_have_count(0)
    page.click("#saved-views a")
    visit.leaves(1)
    page.click(".gallery button.open")
    page.locator("dialog p.note", has_text="blurred #check").wait_for()
    assert visit.complaints == []
    page.close()


def test_a_folder_that_cannot_be_written_says_so(browser, runs, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(notes, "write_json", full)
    with served(runs) as address:
        page = Visit(browser, address).view("samples", "run", "#count")
        page.fill("#view-name", "mine")
        page.click("#save-view")
        page.locator("#status.wrong", has_text="it was not kept").wait_for()
        page.close()
