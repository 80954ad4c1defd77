"""A monitored run as W&B's and TensorBoard's own readers find it."""

import pytest
from examples import keep_wandb_offline, wandb_records
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from setting import loader, module, monitor, trainer

from lrptrain.loggers.findings_table import told

FOCUS = "relevance/label/energy_pointing_game"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of three epochs, the second skipped, to both loggers: what W&B and TensorBoard read, the monitor."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path_factory.mktemp("loggers")
    with pytest.MonkeyPatch.context() as patch:
        keep_wandb_offline(patch, folder)
        wandb, board = WandbLogger(save_dir=folder, project="relevance"), TensorBoardLogger(folder)
        watching = monitor(on_error="raise", bound=0.9, every_n_epochs=2)
        runner = trainer(folder, watching, logger=[wandb, board], max_epochs=3, log_every_n_steps=1)
        runner.fit(module(), loader(), loader())
        wandb.experiment.finish()
        board.experiment.close()
    run = next((folder / "wandb").glob("offline-run-*"))
    events = EventAccumulator(board.log_dir)
    events.Reload()
    return wandb_records(run), events, watching


def test_wandb_has_scalars_overlays_masks_table_and_alert(runs):
    records, _, watching = runs
    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    scalars = [row for row in history if FOCUS in row]
    assert [row["trainer/global_step"] for row in scalars] == [4, 14]  # the skipped epoch makes no point
    assert scalars[1][FOCUS] == pytest.approx(watching.core.scalars[FOCUS])
    assert {"relevance/findings", "relevance/seconds", "relevance/failures", "epoch"} <= set(scalars[0])
    media = [row for row in history if "relevance/overlays.count" in row]
    assert [row["trainer/global_step"] for row in media] == [4, 14]
    assert all("annotation" in masks for masks in media[0]["relevance/overlays.all_masks"])
    assert any(key.startswith("relevance/samples") for key in media[0])
    alerts = [record["alert"] for record in records if record["type"] == "alert"]
    assert {alert["text"] for alert in alerts} >= {told(f) for f in watching.findings if f.epoch == f.first_epoch}
    assert len(alerts) >= 1


def test_tensorboard_has_scalars_and_images(runs):
    _, events, watching = runs
    assert [point.step for point in events.Scalars(FOCUS)] == [4, 14]
    assert events.Scalars(FOCUS)[1].value == pytest.approx(watching.core.scalars[FOCUS], abs=1e-6)
    images = [tag for tag in events.Tags()["images"] if tag.startswith("relevance/overlays/")]
    assert len(images) == 2
    assert [point.step for point in events.Images(images[0])] == [4, 14]
    assert any("relevance/findings" in tag for tag in events.Tags()["tensors"])
