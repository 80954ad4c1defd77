"""From image labels to masks: seeds and pseudo-masks as files, while a model trains or when it has."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from lrptrain.batch import BatchAdapter
from lrptrain.callbacks.base import ModelCallback, inform
from lrptrain.callbacks.relevance_monitor import monitored_folder
from lrptrain.extras import require
from lrptrain.relevance.model.preserve import preserved
from lrptrain.segmentation.config import THRESHOLD_LINE, PseudoMaskConfig
from lrptrain.segmentation.export import MASK_FOLDERS, ImageSource, run_export
from lrptrain.segmentation.export_files import describe_entries, read_index
from lrptrain.segmentation.images import image_batches
from lrptrain.trainers.checks import check_counts, check_run_name
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.lightning import log_to_all
from lrptrain.trainers.naming import class_names_or_numbers, name_sources
from lrptrain.trainers.processes import gather, in_every_process
from lrptrain.trainers.run_folder import new_run_folder

if TYPE_CHECKING:
    import pytorch_lightning as pl

logger = logging.getLogger(__name__)


class SegmentationSeeds(ModelCallback):
    """Exports seeds and pseudo-masks of a classifier's images: PNGs in VOC's layout, and an index.

    Attach it to any LightningModule whose forward gives logits. At the end of `fit` (and every so many epochs), after
    `validate` and after `predict` it iterates over a dataloader once more, in all processes. An export that was cut off
    continues with the same model. An image of none of the classes, or without positive relevance, is skipped and
    counted. The threshold of the background is the config's, or else fits the true masks of the validation best.

    Logged: `segmentation/<split>/images`, `.../skipped`; where true masks are known also `.../seeds_miou`,
    `.../refined_miou`, `.../masks_miou` (0..1; the last over the pixels that are not ignored) and `.../masks_decided`
    (their share); and `segmentation/failures`. The model runs without autocast, and is left as it was.

    Examples:
        >>> import pytorch_lightning as pl
        >>> from lrptrain.callbacks import SegmentationSeeds
        >>> seeds = SegmentationSeeds(folder="masks", split="val")
        >>> trainer = pl.Trainer(callbacks=[seeds], logger=False)  # trainer.fit(...) writes them, then seeds.scores

    Args:
        config: How seeds and masks are made; None for the defaults.
        split: The images that `fit` exports, those of the training or of the validation, as the dataset gives them.
        folder: The folder of the export, which a later run can continue. None for
            `<default_root_dir>/relevance/<run>/segmentation`.
        every_n_epochs: Export during training, too, to `<folder>/epoch_<n>`; 0: at its end only.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names of the contract.
        class_names: The names of all classes, in the order of the logits; None for the module's or the datamodule's.
        dataloader_idx: The index of the validation or prediction dataloader.
        on_error: "warn": a failure of the export is a warning; "raise": it ends the run.
        run_name: The folder under `relevance/` where there is no monitor, numbered if it exists; None for the time.

    Attributes:
        folder: The folder of the last export; None before the first.
        scores: The content of `scores.json` of the last export.

    Raises:
        ValueError: At construction or when training is set up, with what to change.
    """

    def __init__(
        self,
        config: PseudoMaskConfig | None = None,
        split: Literal["train", "val"] = "train",
        folder: str | None = None,
        every_n_epochs: int = 0,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        class_names: Sequence[str] | None = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
    ) -> None:
        super().__init__()
        if config is not None and not isinstance(config, PseudoMaskConfig):
            raise ValueError(f"config must be a PseudoMaskConfig, not {config!r}; a folder is named by folder=")
        if split not in ("train", "val") or on_error not in ("warn", "raise"):
            raise ValueError(f"split must be 'train' or 'val', on_error 'warn' or 'raise', not {split!r}, {on_error!r}")
        check_counts(every_n_epochs=every_n_epochs + 1, dataloader_idx=dataloader_idx + 1)
        self.config = config or PseudoMaskConfig()
        self.split = split
        self.every_n_epochs = every_n_epochs
        self.model = model
        self.batch_adapter = batch_adapter
        self.class_names = class_names
        self.dataloader_idx: int = dataloader_idx
        self.on_error = on_error
        check_run_name(run_name)
        self.run_name = run_name
        self._named_folder = Path(folder) if folder is not None else None
        self._reset()

    def _reset(self) -> None:
        self.folder: Path | None = None
        self.scores: dict[str, dict[str, Any]] = {}
        self._run_folder: Path | None = None
        self._failures = Failures(self.on_error, "SegmentationSeeds")

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work before the first step, not at the end of the training."""
        if stage not in ("fit", "validate", "predict"):
            return
        super().setup(trainer, pl_module, stage)
        require("PIL.Image", "monitor")
        if stage == "fit" and self.split == "val" and not trainer.enable_validation:
            raise ValueError("SegmentationSeeds exports the validation images: give the trainer some, or split='train'")
        if self.config.threshold is None:
            inform(f"SegmentationSeeds: {THRESHOLD_LINE}")
        self._reset()

    @property
    def failures(self) -> int:
        """How often something failed."""
        return self._failures.count

    def on_validation_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Export in `trainer.validate`, and every so many epochs."""
        if trainer.state.fn == "validate":
            self._export(trainer, pl_module, "val", trainer.val_dataloaders)
        elif self.every_n_epochs and not trainer.sanity_checking:
            epoch = trainer.current_epoch
            if (epoch + 1) % self.every_n_epochs == 0:
                self._export(trainer, pl_module, self.split, self._fit_loaders(trainer), f"epoch_{epoch}")

    def on_fit_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Export with the trained model."""
        self._export(trainer, pl_module, self.split, self._fit_loaders(trainer))

    def on_predict_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Find the model in `trainer.predict`, in which the other callbacks that need one do nothing."""
        self._find_model(trainer, pl_module)

    def on_predict_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Export the images of the prediction."""
        self._export(trainer, pl_module, "predict", trainer.predict_dataloaders)

    def _fit_loaders(self, trainer: "pl.Trainer") -> Any:
        return trainer.train_dataloader if self.split == "train" else trainer.val_dataloaders

    def _export(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", split: str, loaders: Any, subfolder: str = ""
    ) -> None:
        """Export a split. All processes call it, and none leaves it before the others."""
        with self._failures.caught("exporting masks"), preserved(pl_module):
            pl_module.eval()
            folder = self._export_folder(trainer, split) / subfolder
            self.folder = folder
            owners = name_sources(trainer, pl_module)
            has_validation = split != "predict" and trainer.val_dataloaders is not None
            validation = self._source(trainer, pl_module, trainer.val_dataloaders) if has_validation else None
            if self._model is None:
                raise RuntimeError("SegmentationSeeds found no model: was its `setup` called?")
            with torch.autocast(pl_module.device.type, enabled=False):
                self.scores = run_export(
                    self._model,
                    self.config,
                    self._source(trainer, pl_module, loaders),
                    folder,
                    split,
                    lambda classes: class_names_or_numbers(self.class_names, owners, classes),
                    validation,
                    progress=trainer.progress_bar_callback is not None,
                )
            if trainer.is_global_zero:
                inform(f"SegmentationSeeds: {folder}: {describe_entries(read_index(folder))}")
        if trainer.is_global_zero:
            log_to_all(self._scalars(), trainer, self._failures)

    def _source(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", loaders: Any) -> ImageSource:
        """Return what yields this process' images of the chosen dataloader."""
        loader = loaders[self.dataloader_idx] if isinstance(loaders, list | tuple) else loaders

        def to_device(batch: Any) -> Any:
            on_device = trainer.strategy.batch_to_device(batch, pl_module.device)
            return trainer.precision_plugin.convert_input(on_device)

        return lambda: image_batches(loader, self.batch_adapter, to_device)

    def _export_folder(self, trainer: "pl.Trainer", split: str) -> Path:
        """Return the folder of the run's exports, the same in all processes."""
        if self._named_folder is not None:
            return self._named_folder
        if self._run_folder is None:
            # Only the first process knows the monitor's folder, or makes one: all others decide by what it knows, or
            # they would wait in a collective that it leaves out.
            run = gather(monitored_folder(trainer))[0]
            if run is None:
                root = trainer.default_root_dir
                suffix = "" if trainer.state.fn == "fit" else f"-{split}"
                created = in_every_process(
                    lambda: new_run_folder(root, self.run_name, suffix) if trainer.is_global_zero else None
                )
                run = gather(created)[0]
            self._run_folder = Path(str(run)) / "segmentation"
        return self._run_folder

    def _scalars(self) -> dict[str, float]:
        scalars = {"segmentation/failures": float(self.failures)}
        for split, scores in self.scores.items():
            prefix = f"segmentation/{split}"
            scalars |= {f"{prefix}/{name}": float(scores[name]) for name in ("images", "skipped")}
            scalars |= {f"{prefix}/{kind}_miou": scores[kind]["mean_iou"] for kind in MASK_FOLDERS if kind in scores}
            if "masks" in scores:
                scalars[f"{prefix}/masks_decided"] = scores["masks"]["decided"]
        return scalars
