"""A monitored run as the readers of W&B, TensorBoard and MLflow find it."""

import pytest
from examples import Everything, board_of, keep_wandb_offline, wandb_records
from guided import guidance
from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from setting import balanced, loader, module, monitor, trainer

from lrptrain.findings import Finding
from lrptrain.loggers import read_events

FOCUS = "relevance/label/energy_pointing_game"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One guided run of three epochs, the second skipped: what W&B, TensorBoard and MLflow read, and the monitor.

    MLflow keeps a file per key, so that no key can be the folder of another one.
    """
    folder = tmp_path_factory.mktemp("loggers")
    with pytest.MonkeyPatch.context() as patch:
        keep_wandb_offline(patch, folder)
        wandb, board = WandbLogger(save_dir=folder, project="relevance"), TensorBoardLogger(folder)
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow = MLFlowLogger(tracking_uri=(folder / "mlflow").as_uri(), prefix="run1")
        watching = monitor(
            on_error="raise",
            cues=[Everything()],
            min_effect=1e-6,
            every_n_epochs=2,
            class_names=["cat", "cat/wild", "猫 & dog"],
        )
        callbacks = [watching, guidance("energy")]
        runner = trainer(folder, *callbacks, logger=[wandb, board, mlflow], max_epochs=3, log_every_n_steps=1)
        runner.fit(module(net=balanced(), lr=1e-7), loader(), loader())
        wandb.experiment.finish()
        board.experiment.close()
    run = next((folder / "wandb").glob("offline-run-*"))
    events = board_of(board.log_dir)
    return wandb_records(run), events, mlflow, watching


def test_wandb_has_scalars_overlays_masks_table_and_alert(runs):
    records, _, _, watching = runs
    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    scalars = [row for row in history if FOCUS in row]
    assert [row["trainer/global_step"] for row in scalars] == [4, 14]  # the skipped epoch makes no point
    assert scalars[1][FOCUS] == pytest.approx(watching.core.recorder.scalars[FOCUS])
    assert {"relevance/samples", "relevance/seconds", "relevance/failures", "epoch"} <= set(scalars[0])
    media = [row for row in history if "relevance/overlays.count" in row]
    assert [row["trainer/global_step"] for row in media] == [4, 14]
    assert all("annotation" in masks for masks in media[0]["relevance/overlays.all_masks"])
    assert any(key.startswith("relevance/samples") for key in media[0])
    alerts = [record["alert"] for record in records if record["type"] == "alert"]
    first = [Finding.from_dict(values) for values in read_events(watching.folder)[0]["findings"]]
    assert first
    assert {alert["text"] for alert in alerts} >= {str(finding) for finding in first}  # then all of them are news


def test_mlflows_file_store_gives_every_scalar_back(runs):
    _, _, logger, watching = runs
    client, run_id = logger.experiment, logger.run_id
    last = client.get_run(run_id).data.metrics
    assert any(key.startswith("run1-guidance/") for key in last)
    stored = {key: client.get_metric_history(run_id, key) for key in last if key.startswith("run1-relevance/")}
    # The name of a class has a character that MLflow refuses: its keys are known by their values alone.
    plain = {key.removeprefix("run1-"): points for key, points in stored.items() if "\u732b" not in key}
    events = read_events(watching.folder)
    assert {f"relevance/{key}" for key in ("findings", "reliance", "any_reliance")} <= events[1]["scalars"].keys()
    # What is not known is null in the record, and makes no point.
    written = [{key: value for key, value in event["scalars"].items() if value is not None} for event in events]
    for step, scalars in zip((4, 14), written, strict=True):
        read_back = {key: point.value for key, points in plain.items() for point in points if point.step == step}
        assert read_back == pytest.approx(
            {key: value for key, value in scalars.items() if "\u732b" not in key}, abs=1e-12
        )
        others = [point.value for key in stored.keys() - {f"run1-{key}" for key in plain} for point in stored[key]]
        assert {value for key, value in scalars.items() if "\u732b" in key} <= set(others)
    assert len(stored) == len({key for scalars in written for key in scalars})
