"""From image labels to masks: seeds and pseudo-masks as files, while a model trains or when it has."""

from pathlib import Path
from typing import Any, Literal

import torch

from lrptrain.batch import BatchAdapter
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.extras import require
from lrptrain.relevance.preserve import preserved
from lrptrain.segmentation.files import counted, read_index
from lrptrain.segmentation.loading import pictures
from lrptrain.segmentation.recipe import Recipe
from lrptrain.segmentation.run import Source, run_export, together
from lrptrain.trainers.checks import check_counts, check_strategy
from lrptrain.trainers.discover import find_class_names, find_model
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.lightning import log_scalars
from lrptrain.trainers.processes import gather, rank_and_size
from lrptrain.trainers.run_folder import run_folder


class SegmentationSeeds(ModelCallback):
    """Exports seeds and pseudo-masks of a classifier's images: PNGs in VOC's layout, maps and an index.

    Attach it to any LightningModule whose forward gives logits. At the end of `fit` (and every so many epochs), after
    `validate` and after `predict` it goes through a dataloader once more, in all processes, and writes what
    `lrptrain.segmentation.files` describes. An export that was cut off goes on where it was, with the same model. An
    image of none of the classes, or without positive relevance, is skipped, and counted with its reason.

    The threshold of the background is the recipe's, or the one that fits the true masks of the validation images best.

    Logged: `segmentation/<split>/images`, `.../skipped`; where true masks are known also `.../seeds_miou`,
    `.../refined_miou`, `.../masks_miou` (0..1; the last over the pixels that are not ignored) and `.../masks_decided`
    (their share); and `segmentation/failures`.

    The model runs in its own precision, without autocast, in evaluation mode. Weights, gradients, flags and random
    states are left as they were.

    Args:
        recipe: How seeds and masks are made.
        split: The images that `fit` exports: those of the training or of the validation, in the dataset's order, with
            the training's augmentation if its dataset has one. `validate` exports the validation's, `predict` its own.
        folder: Of the export; else `<default_root_dir>/relevance/<run>/segmentation`, beside the record of a
            `RelevanceMonitor` if there is one. Only a folder of its own can be gone on with.
        every_n_epochs: Export during training, too, to `<folder>/epoch_<n>`; 0: at its end only.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names of the contract.
        class_names: Of all classes, in the order of the logits; else the module's or the datamodule's.
        dataloader_idx: Which validation or prediction dataloader.
        on_error: "warn": a failure of the export is a warning; "raise": it ends the run.
        run_name: Folder under `relevance/` where there is no monitor, numbered if it exists; else the time.

    Attributes:
        folder: Of the last export, None before.
        scores: What `scores.json` of the last export holds.

    Raises:
        ValueError: At construction or when training is set up, with what to change.
    """

    folder: Path | None
    scores: dict[str, dict[str, Any]]

    def __init__(
        self,
        recipe: Recipe | None = None,
        split: Literal["train", "val"] = "train",
        folder: str | None = None,
        every_n_epochs: int = 0,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        class_names: list[str] | None = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
    ) -> None:
        super().__init__()
        if split not in ("train", "val") or on_error not in ("warn", "raise"):
            raise ValueError(f"split must be 'train' or 'val', on_error 'warn' or 'raise', not {split!r}, {on_error!r}")
        check_counts(every_n_epochs=every_n_epochs + 1, dataloader_idx=dataloader_idx + 1)
        self.recipe, self.split, self.every_n_epochs = recipe or Recipe(), split, every_n_epochs
        self.model, self.batch_adapter, self.class_names = model, batch_adapter, class_names
        self.dataloader_idx, self.on_error, self.run_name = dataloader_idx, on_error, run_name
        self.folder, self.scores, self._model = None, {}, None
        self._root = Path(folder) if folder is not None else None
        self._own: Path | None = None
        self._failures = Failures(on_error, "SegmentationSeeds")

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot work, before anything is lost."""
        if stage not in ("fit", "validate", "predict"):
            return
        check_strategy(trainer.strategy, "SegmentationSeeds")
        require("PIL.Image", "monitor")
        if self.recipe.refine == "guided_filter":
            require("kornia", "refinement")
        if self.recipe.refine == "dense_crf":
            require("pydensecrf", "crf")
        needs = self.split == "val" or self.recipe.threshold is None
        if stage == "fit" and needs and not trainer.enable_validation:
            raise ValueError(
                "SegmentationSeeds needs a validation here: give the trainer one, or a Recipe(threshold=...)"
            )
        if stage == "predict" and self.recipe.threshold is None and self._root is None:
            raise ValueError(
                "prediction has no true masks on which a threshold could be chosen: give a Recipe(threshold=...), or "
                "the folder of an export that has one"
            )
        self._model, self._own, self.folder, self.scores = None, None, None, {}
        self._failures = Failures(self.on_error, "SegmentationSeeds")

    @property
    def failures(self) -> int:
        """How often something failed."""
        return self._failures.count

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the model for `trainer.predict`."""
        self._model = find_model(pl_module, self.model)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Export in `trainer.validate`, and every so many epochs."""
        if trainer.state.fn == "validate":
            self._export(trainer, pl_module, "val", trainer.val_dataloaders)
        elif self.every_n_epochs and not trainer.sanity_checking:
            epoch = trainer.current_epoch
            if (epoch + 1) % self.every_n_epochs == 0:
                self._export(trainer, pl_module, self.split, self._of_fit(trainer), f"epoch_{epoch}")

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Export with the trained model."""
        self._export(trainer, pl_module, self.split, self._of_fit(trainer))

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Export the images of the prediction."""
        self._export(trainer, pl_module, "predict", trainer.predict_dataloaders)

    def _of_fit(self, trainer: Any) -> Any:
        return trainer.train_dataloader if self.split == "train" else trainer.val_dataloaders

    def _export(self, trainer: Any, pl_module: Any, split: str, loaders: Any, inside: str = "") -> None:
        """In all processes, whatever happens in one."""
        with self._failures.caught("exporting masks"), preserved(pl_module):
            pl_module.eval()
            self.folder = self._begin(trainer, split) / inside
            owners = (pl_module, trainer.datamodule)
            with torch.autocast(pl_module.device.type, enabled=False):
                assert self._model is not None
                self.scores = run_export(
                    self._model,
                    self.recipe,
                    self._source(trainer, pl_module, loaders),
                    self.folder,
                    split,
                    lambda classes: find_class_names(self.class_names, owners, classes),
                    self._source(trainer, pl_module, trainer.val_dataloaders) if split != "predict" else None,
                )
            if trainer.is_global_zero:
                print(f"SegmentationSeeds: {self.folder}: {counted(read_index(self.folder))}", flush=True)
        for logger in trainer.loggers if trainer.is_global_zero else ():
            with self._failures.caught(f"logging to {type(logger).__name__}"):
                log_scalars(logger, self._scalars(), trainer)

    def _source(self, trainer: Any, pl_module: Any, loaders: Any) -> Source:
        loader = loaders
        if isinstance(loaders, list | tuple):
            loader = loaders[self.dataloader_idx]

        def place(batch: Any) -> Any:
            moved = trainer.strategy.batch_to_device(batch, pl_module.device)
            return trainer.precision_plugin.convert_input(moved)

        return lambda: pictures(loader, *rank_and_size(), self.batch_adapter, place)

    def _begin(self, trainer: Any, split: str) -> Path:
        """The folder of the run's exports, the same in all processes."""
        if self._root is not None:
            return self._root
        if self._own is None:
            monitored = (each.folder for each in trainer.callbacks if type(each).__name__ == "RelevanceMonitor")
            own = next((folder for folder in monitored if folder is not None), None)
            if own is None:
                root, suffix = trainer.default_root_dir, "" if trainer.state.fn == "fit" else f"-{split}"
                own = together(lambda: run_folder(root, self.run_name, suffix) if trainer.is_global_zero else None)
            self._own = Path(gather(own)[0]) / "segmentation"
        return self._own

    def _scalars(self) -> dict[str, float]:
        found = {"segmentation/failures": float(self.failures)}
        for split, known in self.scores.items():
            found |= {f"segmentation/{split}/{name}": float(known[name]) for name in ("images", "skipped")}
            for kind in ("seeds", "refined", "masks"):
                if kind in known:
                    found[f"segmentation/{split}/{kind}_miou"] = known[kind]["mean_iou"]
            if "masks" in known:
                found[f"segmentation/{split}/masks_decided"] = known["masks"]["decided"]
        return found
