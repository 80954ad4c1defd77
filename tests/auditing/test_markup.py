"""What an audit and a comparison are as the last line of a notebook's cell."""

import re

from test_report import result

from lrptrain.auditing.compare import Comparison, Row
from lrptrain.auditing.markup import markdown_html


def test_tables_lists_and_paragraphs():
    page = markdown_html("Two\nlines.\n\n| a | b |\n| - | - |\n| `x` | 1 \\| 2 |\n\n- one <b>\n- two")
    assert "<p>Two lines.</p>" in page
    assert re.findall(r"<(t[hd])[^>]*>(.*?)</\1>", page) == [
        ("th", "a"),
        ("th", "b"),
        ("td", "<code>x</code>"),
        ("td", "1 | 2"),
    ]
    assert "<ul><li>one &lt;b&gt;</li><li>two</li></ul>" in page


def test_an_audit_is_a_table_and_a_short_line():
    audit = result()
    page = audit._repr_html_()
    assert page.count("<tr>") == 1 + 3  # the head, and a row for each method
    assert "0.400 [0.39, 0.41]" in page
    assert "|" not in re.sub(r"<[^>]*>", "", page)
    assert repr(audit) == "AuditResult(20 samples, faithful: attnlrp: yes, raw_attention: yes, random: no)"


def test_a_comparison_is_a_table_and_a_short_line():
    about = {"samples": 8, "seed": 0, "target": "predicted", "accuracy": float("nan")}
    compared = Comparison(
        about, ("rollout", "lrp"), [Row("rollout", cost=1.0), Row("lrp", problem="no | rule <for> it")]
    )
    page = compared._repr_html_()
    assert page.count("<tr>") == 2
    assert "no | rule &lt;for&gt; it" in page
    assert repr(compared) == "Comparison(2 of 2 methods, 8 samples)"
