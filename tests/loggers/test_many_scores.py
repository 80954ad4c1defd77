from lrptrain.loggers import EpochRecord, MLflowRun, what_is_sent
from lrptrain.loggers.many_scores import MOST_ROWS, scores_markdown, scores_table, with_few_scores
from lrptrain.loggers.record_tables import record_tables
from lrptrain.monitor.summary import logged_metrics

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
