import math

from examples import OPEN, finding

from lrptrain.loggers.findings_table import findings_markdown, findings_table

ODD = finding(name="a|b\nc", effect=0.5, interval=(0.25, math.nan), within="", share=None)


def test_a_row_has_the_verdict_and_the_evidence():
    table = findings_table([finding(), OPEN, ODD])
    assert {len(column) for column in table.values()} == {3}
    assert (table["verdict"][0], table["role"], table["kind"]) == (
        "relies",
        ["fault", "open", "fault"],
        ["place", "colour", "place"],
    )
    assert [table[name][0] for name in ("effect", "low", "high", "samples")] == [0.4, 0.3, 0.5, 24]
    assert [table[name][2] for name in ("effect", "low", "high", "share")] == [0.5, 0.25, None, None]
    assert (table["relevance"], table["area"][0]) == ([0.5, None, 0.5], 0.0625)
    assert table["worst_samples"] == ["17, 4"] * 3
    assert table["text"][0] == str(finding())


def test_without_findings_there_are_the_same_columns():
    assert list(findings_table([])) == list(findings_table([finding()]))
    assert findings_markdown([]) == "No finding."


def test_markdown_keeps_a_finding_on_one_line():
    heading, _, row = findings_markdown([ODD]).splitlines()
    assert "a\\|b c" in row
    assert row.replace("\\|", "").count("|") == heading.count("|")
    assert "| 0.5 | 0.25 |  | 24 |" in row
