"""Seeds and pseudo-masks out of real training runs."""

from typing import Any

import pytest
import torch
from examples import assert_same
from pytorch_lightning.loggers import CSVLogger
from setting import PACKAGES, Points, data, loader, messages, module, trainer
from test_harmless import CASES, outcome

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, SegmentationSeeds
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig

QUICK = PseudoMaskConfig(
    "generic_attention", scales=(1, 0.5), flip=False, refine_options={"dilations": (1, 2)}, chunk=8
)


def seeds(folder=None, **options):
    return SegmentationSeeds(QUICK, folder=folder and str(folder), **{"on_error": "raise", **options})


@pytest.mark.parametrize("case", ["bf16 autocast", "lightning.pytorch"])
def test_training_is_the_same_to_the_bit(case, tmp_path):
    exporting = seeds(tmp_path / "masks", every_n_epochs=1, split="train")
    with_seeds = outcome(tmp_path, [exporting], **CASES[case])
    assert exporting.failures == 0
    assert_same(outcome(tmp_path, [], **CASES[case]), with_seeds)
    assert len(export_files.finished_names(tmp_path / "masks")) == 20
    assert len(export_files.finished_names(tmp_path / "masks" / "epoch_0")) == 20


@pytest.mark.parametrize("package", PACKAGES)
def test_after_fit_validate_and_predict(package, tmp_path):
    pl_module, points = module(package), Points()
    exporting = seeds(run_name="run")
    runner = trainer(tmp_path, exporting, package=package, logger=points, max_epochs=1)
    runner.fit(pl_module, loader(data(10), shuffle=True), loader())
    assert exporting.folder == tmp_path / "relevance" / "run" / "segmentation"
    logged = points.rows[-1][1]
    assert logged["segmentation/train/images"] + logged["segmentation/train/skipped"] == 10
    assert 0 <= logged["segmentation/train/refined_miou"] <= 1
    assert 0 < logged["segmentation/train/masks_decided"] <= 1
    assert logged["segmentation/failures"] == 0
    before = {name: value.clone() for name, value in pl_module.state_dict().items()}
    runner.validate(pl_module, loader(), verbose=False)
    assert exporting.folder == tmp_path / "relevance" / "run-val" / "segmentation"
    assert exporting.scores["val"]["images"] > 0
    exporting.config = PseudoMaskConfig("generic_attention", scales=(1,), threshold=0.3)
    pl_module.predict_step = lambda batch, batch_idx: pl_module(batch["image"])
    runner.predict(pl_module, loader(data(7)))
    assert exporting.scores["predict"]["images"] + exporting.scores["predict"]["skipped"] == 7
    assert_same(before, dict(pl_module.state_dict()))
    assert all(parameter.grad is None or not parameter.grad.isnan().any() for parameter in pl_module.parameters())


class OwnMonitor(RelevanceMonitor):
    """A user's subclass of the monitor."""


def test_beside_a_monitor_and_the_validation_images(tmp_path):
    watching: Any = OwnMonitor(max_samples=8, show=lrptrain.Show(max_pictures=2), run=lrptrain.Run(run_name="watched"))
    exporting = seeds(split="val", class_names=["a", "b", "c"])
    runner = trainer(tmp_path, watching, exporting, max_epochs=1, logger=CSVLogger(tmp_path))
    runner.fit(module(), loader(), loader())
    assert exporting.folder == watching.folder / "segmentation" == tmp_path / "relevance" / "watched" / "segmentation"
    assert export_files.read_classes(exporting.folder) == ["a", "b", "c"]
    assert exporting.scores["val"]["images"] + exporting.scores["val"]["skipped"] == 24
    assert "segmentation/val/seeds_miou" in next(tmp_path.rglob("metrics.csv")).read_text()


def test_an_export_goes_on_in_the_next_run(tmp_path, monkeypatch):
    write, count = export_files.write_image_files, iter(range(100))

    def stops(*arguments, **options):
        if next(count) == 4:
            raise OSError("the disk is full")
        return write(*arguments, **options)

    pl_module, folder = module(), tmp_path / "masks"
    monkeypatch.setattr(export_files, "write_image_files", stops)
    exporting = seeds(folder, on_error="warn")
    with pytest.warns(UserWarning, match="SegmentationSeeds failed while exporting masks: OSError: the disk is full"):
        trainer(tmp_path, exporting).validate(pl_module, loader(), verbose=False)
    assert exporting.failures == 1
    assert len(export_files.finished_names(folder)) == 4
    assert (folder / "index.jsonl").exists()
    written: list[str] = []

    def noted(*given):
        written.append(given[1].name)
        return write(*given)

    monkeypatch.setattr(export_files, "write_image_files", noted)
    trainer(tmp_path, seeds(folder)).validate(pl_module, loader(), verbose=False)
    assert len(written) + 4 == len(export_files.finished_names(folder))
    with torch.no_grad():
        pl_module.net.head.bias += 1
    with pytest.raises(ValueError, match="other settings: weights"):
        trainer(tmp_path, seeds(folder)).validate(pl_module, loader(), verbose=False)


def test_without_true_masks_the_default_threshold_is_announced_at_setup(tmp_path):
    columns = data(8)
    del columns["mask"]
    exporting = seeds(tmp_path / "masks")
    pl_module = module()
    with messages() as lines, pytest.warns(UserWarning, match="no validation image has a true mask.*it is 0.3"):
        trainer(tmp_path, exporting).fit(pl_module, loader(data(8)), loader(columns))
    assert sum("where none has a mask, it is 0.3 (`threshold` in the config sets it)" in line for line in lines) == 1
    assert exporting.failures == 0
    assert exporting.scores["train"]["images"] + exporting.scores["train"]["skipped"] == 8


def test_a_failure_ends_no_training(tmp_path):
    columns = data(8)
    columns["mask"] = columns["mask"] * 9
    exporting = seeds(tmp_path / "masks", on_error="warn", every_n_epochs=1)
    runner = trainer(tmp_path, exporting)
    with pytest.warns(UserWarning, match="a mask has the value 9"):
        runner.fit(module(), loader(data(8)), loader(columns))
    assert runner.current_epoch == 2
    assert exporting.failures == 3


def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(ValueError, match="split must be"):
        SegmentationSeeds(split="test")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exports the validation images: give the trainer some"):
        trainer(tmp_path, seeds(split="val"), limit_val_batches=0).fit(module(), loader(), loader())
    with pytest.raises(ValueError, match="there are 1 validation dataloaders"):
        trainer(tmp_path, seeds(dataloader_idx=1)).validate(module(), loader(), verbose=False)


def test_a_folder_by_position_is_refused():
    with pytest.raises(ValueError, match="a folder is named by folder="):
        SegmentationSeeds("masks")  # type: ignore[arg-type]
