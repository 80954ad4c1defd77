"""W&B runs and SummaryWriters that a script has by itself."""

import pytest
from examples import board_of, finding, keep_wandb_offline, wandb_records
from torch.utils.tensorboard import SummaryWriter

from lrptrain import loggers
from lrptrain.loggers import EpochRecord, Highlight
from lrptrain.monitor.summary import logged_metrics

FOCUS = "relevance/label/energy_pointing_game"


def record(epoch, step, score):
    text = Highlight("t", "label", "<b>good</b>", "**good**")
    scalars = {FOCUS: score, "relevance/reliance": 0.0, **{f"{FOCUS}_per_class/{i}": 0.5 for i in range(51)}}
    return EpochRecord(
        epoch, step, scalars, {"sample_id": ["t"]}, [], [text], [], [finding()], metrics=logged_metrics()
    )


def rows(written):
    return [entry["history"]["item"] for entry in written if entry["type"] == "history"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A script logs with steps of its own, which are epochs; the monitor's are optimizer steps, far ahead."""
    import wandb

    folder = tmp_path_factory.mktemp("wandb")
    first, second = record(0, 7, 0.5), record(1, 14, 0.25)
    with pytest.MonkeyPatch.context() as patch:
        keep_wandb_offline(patch, folder)
        run = wandb.init(project="relevance", dir=str(folder))
        assert loggers.is_logger(run)
        for epoch, each in enumerate((first, second)):
            run.log({"loss": float(epoch)}, step=epoch)
            loggers.send_scalars(run, each)
            loggers.send(run, each)
        loggers.send_scalars(run, record(2, 21, 0.75))  # nothing of the script's came between
        run.log({"loss": 9.0}, step=9)
        run.finish()
    return wandb_records(next((folder / "wandb").glob("offline-run-*")))


def test_a_script_loses_no_row(written):
    assert [row["loss"] for row in rows(written) if "loss" in row] == [0.0, 1.0, 9.0]


def test_each_record_is_a_point_against_its_step(written):
    points = [(row["trainer/global_step"], row[FOCUS]) for row in rows(written) if FOCUS in row]
    assert points == [(7, 0.5), (14, 0.25), (21, 0.75)]


def test_media_and_alerts_are_there(written):
    assert sum(any(key.startswith("relevance/highlights") for key in row) for row in rows(written)) == 2
    assert [entry["alert"]["text"] for entry in written if entry["type"] == "alert"]


def test_many_classes_are_a_table_and_no_key_each(written):
    keys = {key.partition(".")[0] for row in rows(written) for key in row}
    declared = {
        str(entry["metric"].get("name", entry["metric"].get("glob_name"))) for entry in written if "metric" in entry
    }
    assert not [key for key in keys | declared if "_per_class/0" in key]
    assert "relevance/scores_table" in keys


def test_a_writer_has_scalars_and_findings(tmp_path):
    writer = SummaryWriter(str(tmp_path))
    assert loggers.is_logger(writer)
    loggers.send_scalars(writer, record(0, 7, 0.5))
    loggers.send(writer, record(0, 7, 0.5))
    board = board_of(tmp_path)
    assert [(point.step, point.value) for point in board.Scalars(FOCUS)] == [(7, 0.5)]
    assert any("relevance/highlights/t" in tag for tag in board.Tags()["tensors"])
    assert any("relevance/findings" in tag for tag in board.Tags()["tensors"])
    assert any("relevance/scores_table" in tag for tag in board.Tags()["tensors"])
    assert not any("per_class" in tag for tag in board.Tags()["scalars"])


def test_what_is_no_logger():
    assert not any(loggers.is_logger(each) for each in ("wandb", None, print, object()))
