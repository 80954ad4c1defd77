import json

import pytest

from lrptrain.dashboard.verdicts import audit_picture, read_audit


def test_an_audit_is_read_as_it_was_written(recorded):
    folder = recorded / "relevance" / "run"
    found = read_audit(folder)
    written = json.loads((folder / "audit" / "results.json").read_text(encoding="utf-8"))
    assert found["there"]
    assert [one["method"] for one in found["verdicts"]] == ["raw_attention"]
    assert found["verdicts"][0]["faithful"] == written["verdicts"][0]["faithful"]
    assert found["verdicts"][0]["numbers"]["perturbation"]["value"] is not None
    assert found["tests"]["perturbation"] == {"number": "gain over random orders", "range": [-0.2, 1.0]}
    assert found["verdicts"][0]["numbers"].keys() <= found["tests"].keys()
    assert found["about"]["samples"] == 8
    assert "gains" in found["pictures"]


def test_a_run_without_an_audit_says_so(recorded):
    found = read_audit(recorded / "relevance" / "texts")
    assert not found["there"]
    assert (found["verdicts"], found["pictures"], found["notes"]) == ([], [], [])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"verdicts": 3}',
        '{"verdicts": [1, {"method": 2}], "units": [{"problem": 1}]}',
        '{"tests": {"x": 1, "y": {"number": 2}, "z": {"number": "z", "range": [0, "1"]}}}',
    ],
)
def test_a_foreign_audit_is_passed_over(runs, content):
    (runs / "run" / "audit" / "results.json").write_text(content)
    audit = read_audit(runs / "run")
    assert audit["verdicts"] == []
    assert audit["tests"] == {}


def test_only_pictures_of_the_audit_are_given(runs):
    folder = runs / "run"
    (folder / "audit" / "page.png").write_text("<script>alert(1)</script>")
    assert audit_picture(folder, "gains") is not None
    for name in ("page", "nothing", "../pictures/x", "..\\x", ""):
        assert audit_picture(folder, name) is None
    assert "page" not in read_audit(folder)["pictures"]
