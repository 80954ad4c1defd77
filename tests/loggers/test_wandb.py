import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import finding, keep_wandb_offline, wandb_records
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from lrptrain.loggers import EpochRecord, Highlight, Picture, send

FINDING = finding(scope="a class whose name is much longer than a title may be")


def pictures(count):
    mask = np.zeros((20, 16), np.uint8)
    mask[:10], mask[18:] = 1, 255
    images = [np.full((20, 16, 3), i, np.uint8) for i in range(count)]
    return [Picture(f"s{i}", f"caption {i}", image, mask if i else None) for i, image in enumerate(images)]


def records():
    """Two epochs of images with a finding that stays, then one of texts."""
    table: dict[str, list] = {
        "sample_id": [f"s{i}" for i in range(70)],
        "label": [0] * 70,
        "epg": [float("nan"), None, *[0.5] * 68],
    }
    first = EpochRecord(0, 7, {"relevance/epg": 0.5}, table, pictures(70), [], [FINDING], [FINDING], ["cat"])
    text = Highlight("t", "label <0>", "<b>good</b>", "**good**")
    texts = EpochRecord(2, 21, {}, {"sample_id": ["t", "u"]}, [], [text])
    return [first, replace(first, epoch=1, step=14, pictures=pictures(2), new_findings=[]), texts, EpochRecord(3, 28)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run written offline by the real client, through Lightning's logger."""
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        keep_wandb_offline(patch, folder)
        logger = WandbLogger(save_dir=folder, project="relevance")
        for record in records():
            send(logger, record)
        logger.experiment.finish()
    return next((folder / "wandb").glob("offline-run-*"))


@pytest.fixture(scope="module")
def written(run):
    """What W&B's own reader finds in the run."""
    return wandb_records(run)


def of(written, kind):
    return [entry[kind] for entry in written if entry["type"] == kind]


@pytest.fixture(scope="module")
def history(written):
    return [row["item"] for row in of(written, "history")]


def test_each_epoch_is_one_row_at_lightnings_step(history):
    assert [row["trainer/global_step"] for row in history] == [7, 14, 21]
    keys = [{key.split(".")[0] for key in row if key.startswith("relevance/")} for row in history]
    assert keys[:2] == [{"relevance/overlays", "relevance/samples"}] * 2  # and not the scalars
    assert keys[2] == {"relevance/highlights", "relevance/samples"}


def test_overlays_are_capped_and_carry_masks_and_captions(run, history):
    first, second = history[:2]
    assert (first["relevance/overlays.count"], second["relevance/overlays.count"]) == (64, 2)
    assert second["relevance/overlays.captions"] == ["caption 0", "caption 1"]
    without, masked = second["relevance/overlays.all_masks"]
    assert not without
    mask = np.asarray(Image.open(run / "files" / masked["annotation"]["path"]))
    assert mask.shape[:2] == (20, 16)
    assert set(np.unique(mask)) == {0, 1, 255}
    image = np.asarray(Image.open(run / "files" / second["relevance/overlays.filenames"][1]))
    np.testing.assert_array_equal(image, pictures(2)[1].image)


def test_the_classes_of_the_mask_are_named(written):
    configs = [value for config in of(written, "config") for value in config["update"].values()]
    labels = [label["value"] for config in configs for label in config.get("mask/class_labels", {}).values()]
    assert labels[0] == {"0": "elsewhere", "1": "annotation", "255": "ignored"}


@pytest.fixture(scope="module")
def tables(written):
    """The table of each epoch, from the artifact that W&B makes of it."""
    contents = [entry for artifact in of(written, "artifact") for entry in artifact["manifest"]["contents"]]
    paths = [Path(entry["local_path"]) for entry in contents if entry["path"] == "relevance/samples.table.json"]
    return [json.loads(path.read_text()) for path in paths]


def kinds(table, column):
    """The types that W&B sees in a column."""
    types = table["column_types"]["params"]["type_map"][column]["params"]["allowed_types"]
    return {kind["wb_type"] for kind in types}


def test_the_table_has_a_row_per_sample_with_its_picture(tables):
    samples = tables[0]
    assert samples["columns"] == ["sample_id", "label", "epg", "overlay"]
    assert len(samples["data"]) == 70
    assert samples["data"][2][:3] == ["s2", 0, 0.5]
    assert samples["data"][2][3]["_type"] == "image-file"
    assert samples["data"][69][3] is None  # beyond the cap
    assert [kinds(samples, name) for name in samples["columns"][1:]] == [{"number", "none"}] * 2 + [
        {"image-file", "none"}
    ]


def test_texts_are_html_in_the_table_and_apart(run, history, tables):
    samples = tables[2]
    assert samples["columns"] == ["sample_id", "highlight"]
    assert [row[1] and row[1]["_type"] for row in samples["data"]] == ["html-file", None]
    page = (run / "files" / history[2]["relevance/highlights.path"]).read_text()
    assert page == "<h4>label &lt;0&gt;</h4>\n<b>good</b>"


def test_a_new_finding_alerts_once(written):
    (alert,) = of(written, "alert")
    assert alert["level"] == "WARN"
    assert alert["text"] == str(FINDING)
    assert len(alert["title"]) < 64
    assert alert["title"].startswith("suspected: a class whose")
    assert alert["wait_duration"] == "1000"  # milliseconds


def test_metrics_are_plotted_over_lightnings_step(written):
    metrics = [metric for metric in of(written, "metric") if metric.get("glob_name") == "relevance/*"]
    assert [metric["step_metric"] for metric in metrics] == ["trainer/global_step"]
