import math

from examples import OPEN, finding

from lrptrain.loggers import EpochRecord, LoggedMetric, MLflowRun, what_is_sent
from lrptrain.loggers.record_tables import (
    MOST_ROWS,
    findings_markdown,
    findings_table,
    record_tables,
    scores_markdown,
    scores_table,
    with_few_scores,
)
from lrptrain.monitor.summary import logged_metrics

ODD = finding(name="a|b\nc", effect=0.5, interval=(0.25, math.nan), within="", share=None)


def test_a_row_has_the_verdict_and_the_evidence():
    table = findings_table([finding(), OPEN, ODD])
    assert {len(column) for column in table.values()} == {3}
    assert (table["verdict"][0], table["role"], table["kind"]) == (
        "relies",
        ["shortcut", "unreviewed", "shortcut"],
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


CLASSES = [LoggedMetric(("per_class/*",), "Classes", "Classes")]
FAMILY = "relevance/label/energy_pointing_game_per_class"
RUN = MLflowRun(None, "")


def record(classes):
    scalars = {f"{FAMILY}/{i}": i / classes for i in range(classes)}
    return EpochRecord(0, 0, {"relevance/chance": 0.5, **scalars}, metrics=logged_metrics())


def test_a_table_has_at_most_what_wandb_shows_and_it_is_said_what_is_missing():
    many = record(MOST_ROWS + 1)
    assert with_few_scores(many).scalars == {"relevance/chance": 0.5}
    assert record_tables(many)["scores_table"]["of"] == [str(i) for i in range(MOST_ROWS)]
    assert scores_markdown(many).count("\n") == MOST_ROWS + 1
    assert what_is_sent(RUN, many)[1:] == [
        "MLflowRun gets the first 10,000 of these scores: all are in the run's folder"
    ]
    whole = record(MOST_ROWS)
    assert len(scores_table(whole)["of"]) == MOST_ROWS
    assert len(what_is_sent(RUN, whole)) == 1


def test_fifty_are_scalars_and_one_more_is_a_table():
    assert len(with_few_scores(record(50)).scalars) == 51
    assert scores_table(record(50))["of"] == []
    assert len(with_few_scores(record(51)).scalars) == 1
    assert scores_table(record(51))["of"] == [str(i) for i in range(51)]


def test_how_many_classes_an_evaluation_has_does_not_decide_what_is_a_table():
    names = [str(i) for i in range(60)]
    notes = []
    for predicted in (40, 55):
        scalars = {"relevance/epg": 0.5, **{f"relevance/per_class/{name}": 1.0 for name in names[:predicted]}}
        given = EpochRecord(0, 0, scalars, metrics=CLASSES, class_names=names)
        assert with_few_scores(given).scalars == {"relevance/epg": 0.5}
        assert len(scores_table(given)["of"]) == predicted
        notes.append(what_is_sent(RUN, given))
    assert notes[0] == notes[1]
    without = EpochRecord(0, 0, {"relevance/epg": 0.5}, metrics=CLASSES, class_names=names)
    assert what_is_sent(RUN, without) == []
