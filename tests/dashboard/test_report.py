import json
import re

import pytest

from lrptrain.dashboard.page import page
from lrptrain.dashboard.report import MOST_SAMPLES, write_html_report
from lrptrain.loggers import EpochRecord, write_record
from lrptrain.loggers.timeline import UnreadableRunError


@pytest.fixture(scope="module")
def html(recorded, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    write_html_report(recorded, path)
    return path.read_text(encoding="utf-8")


def data(html):
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', html, re.S)
    return json.loads(found)


def test_it_holds_everything_that_the_page_asks_for(html):
    found = data(html)
    assert list(found) == ["relevance/run", "relevance/texts"]
    run = found["relevance/run"]
    assert [event["epoch"] for event in run["events"]["events"]] == [0, 1, 2]
    assert set(run["scores"]) == {"", "cat", "<b>dog</b>", "ünït"}
    assert len(run["cards"]["cards"]) == len(run["history"]) == len(run["images"]) == 24
    assert run["images"]["0"]["image"].startswith("data:image/webp;base64,")
    assert found["relevance/texts"]["images"]["0"] == {}


def test_it_needs_no_other_file(html):
    markup = re.sub(r"(<script[^>]*>).*?</script>", r"\1", html, flags=re.S)
    assert not re.search(r"\b(src|href)=|url\(|@import", markup)
    assert "default-src 'none'" in html
    assert "vegaEmbed" in html


def test_data_cannot_end_its_script(html):
    assert "<script>alert(1)</script>" not in html
    assert html.count("</script") == 3
    assert data(page('{"a": "</script><script>alert(1)</script><!--"}')) == {
        "a": "</script><script>alert(1)</script><!--"
    }


def test_of_many_samples_it_holds_some(tmp_path):
    samples: dict[str, list] = {"sample_id": list(range(500)), "map_label": [[1.0]] * 500}
    write_record(tmp_path / "run", EpochRecord(0, 0, samples=samples))
    write_html_report(tmp_path, tmp_path / "report.html")
    run = data((tmp_path / "report.html").read_text(encoding="utf-8"))["run"]
    assert len(run["table"]["columns"]["sample_id"]) == 500
    assert len(run["cards"]["cards"]) == MOST_SAMPLES


def test_without_a_run_there_is_no_report(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run in"):
        write_html_report(tmp_path, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_format_is_in_it_only_beside_others(runs, tmp_path):
    path = runs / "run" / "events.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 2, ', ""), encoding="utf-8")
    assert write_html_report(runs, tmp_path / "report.html") == ["run", "texts"]
    assert "another version of lrptrain" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(UnreadableRunError, match="another version of lrptrain"):
        write_html_report(runs / "run", tmp_path / "report.html")
