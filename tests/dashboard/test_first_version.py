"""A run that version 0.1.0 wrote, three days into it: it is read, and judged by what it knew."""

import json
import re
from pathlib import Path

import pytest

import lrptrain
from lrptrain.dashboard.report import write_html_report
from lrptrain.loggers import read_samples

RUN = Path(__file__).parent / "first_version"


def test_its_findings_fail_a_check_as_they_did():
    result = lrptrain.check(RUN)
    assert result.verdict == "failed"
    assert result.reliance == pytest.approx(0.2497, abs=1e-4)
    fault, other = result.findings
    assert (fault.name, fault.role, fault.verdict) == ("what lies outside the annotation", "fault", "relies")
    assert other.verdict == "does not rely"


def test_its_page_shows_them_and_the_samples(tmp_path):
    write_html_report(RUN, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', html, re.S)
    (run,) = json.loads(found).values()
    assert [event["epoch"] for event in run["events"]["events"]] == [0, 1, 2]
    assert len(run["cards"]["cards"]) == 16
    assert run["images"]["1"]["image"].startswith("data:image/webp;base64,")
    assert run["events"]["events"][-1]["findings"][0]["verdict"] == "relies"


def test_its_samples_are_read():
    table = read_samples(RUN)
    assert len(table["sample_id"]) == 2 * 16  # of the last two evaluations, which are kept here
    assert {len(x) for x in table["map_label"]} == {16}
