"""A run with 200 classes: no logger gets a key for each, and the record has them all."""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import board_of, keep_wandb_offline, wandb_records
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from setting import loader, module, monitor, trainer, vit

from lrptrain.loggers import read_events

CLASSES = 200
PER_CLASS = "relevance/label/energy_pointing_game_per_class"


def photos(samples: int, seed: int) -> dict[str, torch.Tensor]:
    """Noise of every class and of 100 groups, whose evidence is the left half."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(samples, 8, 8, dtype=torch.uint8)
    mask[:, :, :4] = 1
    number = torch.arange(samples)
    image = torch.randn(samples, 3, 8, 8, generator=generator)
    return {"image": image, "label": number % CLASSES, "group": number % 100, "mask": mask}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What W&B and TensorBoard read of an evaluation, what the monitor recorded, and what was said."""
    folder = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The run's record")
        keep_wandb_offline(patch, folder)
        loggers: list[Any] = [WandbLogger(save_dir=folder, project="relevance"), TensorBoardLogger(folder)]
        # Without pictures: a thousand files with an fsync each take longer than all else.
        watching = monitor(on_error="raise", max_samples=CLASSES, batch_size=250, max_record_mb=0, max_pictures=2)
        runner = trainer(folder, watching, logger=loggers, max_epochs=1, log_every_n_steps=1)
        net = vit(img_size=8, patch_size=2, depth=1, num_classes=CLASSES)
        runner.fit(module(net=net), loader(photos(100, 0), 50), loader(photos(CLASSES, 1), 250))
        loggers[0].experiment.finish()
        loggers[1].experiment.close()
    events = board_of(loggers[1].log_dir)
    path = next((folder / "wandb").glob("offline-run-*"))
    return wandb_records(path), events, watching, runner


def test_wandb_gets_one_table_for_an_evaluation_and_no_key_for_a_class(run):
    records, _, watching, _ = run
    rows = [record["history"]["item"] for record in records if record["type"] == "history"]
    keys = Counter(key.split(".")[0] for row in rows for key in {key.split(".")[0] for key in row})
    assert not [key for key in keys if "per_class" in key or "per_group" in key]
    assert len(keys) < 60
    assert keys["relevance/scores_table"] == 1
    # Scalars and media of an evaluation are a row each: W&B takes 1,000 of them in a minute.
    assert sum(any(key.startswith("relevance/") for key in row) for row in rows) == 2
    # What a metric is declared as counts like a key: the run's page asks for each of them.
    declared = {
        record["metric"].get("name", record["metric"].get("glob_name")) for record in records if "metric" in record
    }
    assert not [name for name in declared if "per_class" in name or "per_group" in name]
    contents = [
        entry for record in records if "artifact" in record for entry in record["artifact"]["manifest"]["contents"]
    ]
    paths = [Path(each["local_path"]) for each in contents if each["path"] == "relevance/scores_table.table.json"]
    expected = {(key.rpartition("/")[0].removeprefix("relevance/"), key.rpartition("/")[2]): value
                for key, value in read_events(watching.folder)[-1]["scalars"].items() if "_per_" in key}  # fmt: skip
    table = json.loads(paths[-1].read_text())
    assert table["columns"] == ["score", "of", "value"]
    assert {(score, name): value for score, name, value in table["data"]} == pytest.approx(expected)
    assert sum(score == PER_CLASS.removeprefix("relevance/") for score, *_ in table["data"]) == CLASSES
    assert sum(score == "accuracy_per_group" for score, *_ in table["data"]) == 100


def test_tensorboard_gets_a_text_and_no_curve_for_a_class(run):
    _, events, _, _ = run
    tags = events.Tags()
    assert not [tag for tag in tags["scalars"] if "per_class" in tag or "per_group" in tag]
    (text,) = [tag for tag in tags["tensors"] if "scores_table" in tag]
    written = events.Tensors(text)[-1].tensor_proto.string_val[0].decode()
    assert written.count("| label/energy_pointing_game_per_class | ") == CLASSES


def test_the_record_and_what_decides_about_the_run_have_each_class(run):
    _, _, watching, runner = run
    for scalars in (read_events(watching.folder)[-1]["scalars"], runner.callback_metrics):
        assert sum(key.startswith(f"{PER_CLASS}/") for key in scalars) == CLASSES
