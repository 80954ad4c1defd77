import math
from dataclasses import replace

from examples import finding

from lrptrain.findings import Evidence
from lrptrain.loggers.findings_table import findings_markdown, findings_table

FOUND = finding()
JUDGED = finding(
    state="confirmed",
    where="a|b\nc",
    intervention=Evidence(0.5, (0.25, math.inf), 0.125, math.nan, 9),
    history=(0.1, 0.5),
)


def test_a_row_has_both_kinds_of_evidence():
    table = findings_table([FOUND, JUDGED])
    assert {len(column) for column in table.values()} == {2}
    assert table["relevance"] == [0.12, 0.12]
    assert [table[f"relevance_{name}"][0] for name in ("low", "high", "p", "reference")] == [0.09, 0.15, 0.001, 0.31]
    assert table["intervention"] == [None, 0.5]
    assert [table[f"intervention_{name}"][1] for name in ("low", "high", "p", "reference")] == [0.25, None, None, 0.125]
    assert table["severity"] == [0.0, 0.5]
    assert table["samples"] == [24, 9]
    assert table["trend"] == [0.0, 0.4]
    assert table["worst_samples"] == ["17, 4"] * 2


def test_without_findings_there_are_the_same_columns():
    assert list(findings_table([])) == list(findings_table([FOUND]))
    assert findings_markdown([]) == "No finding stands."


def test_a_finding_without_a_map_has_no_relevance():
    unseen = replace(JUDGED, relevance=None)
    assert findings_table([unseen])["relevance"] == [None]
    assert "|  | 0.5 (0.25 to inf; reference 0.125) |" in findings_markdown([unseen])


def test_markdown_keeps_a_finding_on_one_line():
    heading, _, row = findings_markdown([JUDGED]).splitlines()
    assert "a\\|b c" in row
    assert row.replace("\\|", "").count("|") == heading.count("|")
