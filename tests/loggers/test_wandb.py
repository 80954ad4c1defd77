import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import INCONCLUSIVE, OPEN, finding, keep_wandb_offline, wandb_records
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from lrptrain.loggers import EpochRecord, Highlight, Picture, send, send_scalars
from lrptrain.loggers.record_tables import findings_table
from lrptrain.loggers.wandb import _of_one_size
from lrptrain.monitor.summary import logged_metrics

FOCUS = "relevance/label/energy_pointing_game"
FINDING = finding(name="a corner whose name is much longer than a title may be")
UNKNOWN = finding(interval=(0.125, math.nan))


def pictures(count):
    mask = np.zeros((20, 16), np.uint8)
    mask[:10], mask[18:] = 1, 255
    images = [np.full((20, 16, 3), i, np.uint8) for i in range(count)]
    return [Picture(f"s{i}", f"caption {i}", image, mask if i else None) for i, image in enumerate(images)]


def records():
    """Two epochs of images with a finding that stays, then one of texts."""
    table: dict[str, list] = {
        "sample_id": [f"s{i}" for i in range(70)],
        "label": ["cat"] * 70,
        "predicted": ["cat", "dog"] * 35,
        "epg": [float("nan"), None, *[0.5] * 68],
        "map_label": [[0.5, 0.25]] * 70,
    }
    scalars = {FOCUS: 0.5, f"{FOCUS}_per_class/cat": 0.5, "relevance/reliance": 0.0, "relevance/seconds": 3.0}
    first = EpochRecord(
        0, 7, scalars, table, pictures(70), [], [FINDING, UNKNOWN], [FINDING, OPEN, INCONCLUSIVE], ["cat"]
    )
    first = replace(first, metrics=logged_metrics())
    text = Highlight("t", "label <0>", "<b>good</b>", "**good**")
    texts = EpochRecord(2, 21, {}, {"sample_id": ["t", "u"]}, [], [text])
    second = replace(first, epoch=1, step=14, scalars={**scalars, FOCUS: 0.25}, findings=[], new_findings=[])
    return [first, replace(second, pictures=pictures(2)), texts, EpochRecord(3, 28)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run written offline by the real client, through Lightning's logger."""
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        keep_wandb_offline(patch, folder)
        logger = WandbLogger(save_dir=folder, project="relevance")
        for record in records():
            if record.scalars:
                send_scalars(logger, record)
            send(logger, record)
        logger.experiment.finish()
    return next((folder / "wandb").glob("offline-run-*"))


@pytest.fixture(scope="module")
def written(run):
    """What W&B's own reader finds in the run."""
    return wandb_records(run)


def of(written, kind):
    return [entry[kind] for entry in written if entry["type"] == kind]


def rows(written):
    return [row["item"] for row in of(written, "history")]


@pytest.fixture(scope="module")
def history(written):
    """The rows of media."""
    return [row for row in rows(written) if FOCUS not in row]


def test_the_media_of_each_epoch_are_one_row_at_lightnings_step(history):
    assert [row["trainer/global_step"] for row in history] == [7, 14, 21]
    keys = [{key.split(".")[0] for key in row if key.startswith("relevance/")} for row in history]
    tables = {"relevance/samples", "relevance/findings_table"}
    assert keys[:2] == [{"relevance/overlays"} | tables] * 2
    assert keys[2] == {"relevance/highlights"} | tables


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


def tables(written, name):
    """The table of each epoch, from the artifact that W&B makes of it."""
    contents = [entry for artifact in of(written, "artifact") for entry in artifact["manifest"]["contents"]]
    paths = [Path(entry["local_path"]) for entry in contents if entry["path"] == f"relevance/{name}.table.json"]
    return [json.loads(path.read_text()) for path in paths]


def kinds(table, column):
    """The types that W&B sees in a column."""
    types = table["column_types"]["params"]["type_map"][column]["params"]["allowed_types"]
    return {kind["wb_type"] for kind in types}


def test_the_table_has_a_row_per_sample_to_filter_with_its_picture(written):
    samples = tables(written, "samples")[0]
    assert samples["columns"] == ["sample_id", "label", "predicted", "epg", "correct", "overlay"]  # and no maps
    assert len(samples["data"]) == 70
    assert samples["data"][2][:5] == ["s2", "cat", "cat", 0.5, True]
    assert samples["data"][3][4] is False
    assert samples["data"][2][5]["_type"] == "image-file"
    assert samples["data"][69][5] is None  # beyond the cap
    expected = [{"string", "none"}] * 2 + [{"number", "none"}, {"boolean", "none"}, {"image-file", "none"}]
    assert [kinds(samples, name) for name in samples["columns"][1:]] == expected


def test_the_tables_pictures_have_their_masks_with_named_classes(written):
    without, masked = (row[5] for row in tables(written, "samples")[0]["data"][:2])
    assert not without.get("masks")
    assert masked["masks"]["annotation"]["path"].endswith(".mask.png")
    contents = [entry for artifact in of(written, "artifact") for entry in artifact["manifest"]["contents"]]
    path = next(entry["local_path"] for entry in contents if entry["path"] == masked["classes"]["path"])
    named = {entry["id"]: entry["name"] for entry in json.loads(Path(path).read_text())["class_set"]}
    assert named == {0: "elsewhere", 1: "annotation", 255: "ignored"}


def test_the_findings_are_a_table_in_each_epoch(written):
    first, none, _ = tables(written, "findings_table")
    rows = [dict(zip(first["columns"], row, strict=True)) for row in first["data"]]
    assert rows[0]["name"] == FINDING.name
    assert {key: rows[1][key] for key in ("verdict", "role", "kind", "samples", "worst_samples")} == {
        "verdict": "relies",
        "role": "shortcut",
        "kind": "place",
        "samples": 24,
        "worst_samples": "17, 4",
    }
    assert [rows[1][key] for key in ("effect", "low", "high", "relevance")] == [0.4, 0.125, None, 0.5]
    assert rows[1]["text"] == str(UNKNOWN)
    assert (none["columns"], none["data"]) == (list(findings_table([])), [])
    assert none["columns"] == first["columns"]


def test_texts_are_html_in_the_table_and_apart(run, history, written):
    samples = tables(written, "samples")[2]
    assert samples["columns"] == ["sample_id", "highlight"]
    assert [row[1] and row[1]["_type"] for row in samples["data"]] == ["html-file", None]
    page = (run / "files" / history[2]["relevance/highlights.path"]).read_text()
    assert page == "<h4>label &lt;0&gt;</h4>\n<b>good</b>"


def test_new_findings_alert_once_each(written):
    alerts = of(written, "alert")
    assert [alert["level"] for alert in alerts] == ["ERROR", "WARN", "WARN"]
    assert [alert["text"] for alert in alerts] == [str(each) for each in (FINDING, OPEN, INCONCLUSIVE)]
    assert max(len(alert["title"]) for alert in alerts) < 64
    assert alerts[0]["title"].startswith("SHORTCUT: the model relies on a corner whose")
    assert alerts[1]["title"] == "NEEDS REVIEW: the model relies on the colours of the image."
    assert alerts[0]["wait_duration"] == "1000"  # milliseconds


def test_metrics_are_plotted_over_lightnings_step(written):
    metrics = [metric for metric in of(written, "metric") if metric.get("glob_name") == "relevance/*"]
    assert [metric["step_metric"] for metric in metrics] == ["trainer/global_step"]


def test_the_summary_keeps_what_matters_of_each_scalar(written):
    last = {key: value for summary in of(written, "summary") for key, value in summary["update"].items()}
    assert last[FOCUS] == {"max": 0.5, "last": 0.25}  # the first value counts
    assert last[f"{FOCUS}_per_class/cat"] == {"max": 0.5, "last": 0.5}
    assert last["relevance/reliance"] == {"min": 0.0, "max": 0.0, "last": 0.0}
    assert last["relevance/seconds"] == {"mean": 3.0, "max": 3.0, "last": 3.0}
    steps = {metric["step_metric"] for metric in of(written, "metric") if metric.get("summary")}
    assert steps == {"trainer/global_step"}


def test_pictures_with_longer_titles_are_logged_at_one_size():
    taller = np.zeros((30, 16, 3), np.uint8)
    shown = _of_one_size([*pictures(2), Picture("tall", "of three lines", taller)])
    assert {each.image.shape for each in shown} == {(30, 16, 3)}
    assert (shown[0].image[20:] == 255).all()
    assert shown[1].mask is not None
    assert shown[1].mask.shape == (30, 16)
    assert not shown[1].mask[20:].any()
