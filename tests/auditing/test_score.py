import math
import re

import numpy as np
from scipy import stats

from lrptrain.auditing.score import Score, markdown_html, markdown_table, summarize, table_cell


def test_the_interval_is_that_of_t_without_nan():
    values = np.array([0.1, 0.4, -0.2, 0.7])
    score = summarize([*values, math.nan])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    np.testing.assert_allclose([score.value, score.low, score.high], [values.mean(), low, high], atol=1e-5)
    assert score.samples == 4


def test_sentences_and_tables_write_mean_and_interval():
    score = Score(0.4, 0.3, 0.5, 9)
    assert str(score) == "0.40 [0.30, 0.50]"
    assert table_cell(score) == "0.400 [0.30, 0.50]"
    assert table_cell(Score(0.4, math.nan, math.nan, 1)) == "0.400"
    assert table_cell(Score(0.1, -0.001, 0.2, 3)) == "0.100 [0.00, 0.20]"  # no minus before a zero
    assert table_cell(None) == table_cell(summarize([])) == "-"


def test_columns_are_aligned():
    assert markdown_table([["a", "bb"], ["ccc", "d"]]) == "| a   | bb |\n| --- | -- |\n| ccc | d  |"


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
