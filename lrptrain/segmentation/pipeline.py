"""All stages from image labels to a segmenter, from one config."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import move_data_to_device
from torch import nn

from lrptrain.data.common import SPLITS
from lrptrain.files import write_json
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig, Training
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.export import ImageSource, run_export, to_lists
from lrptrain.segmentation.folder import SegmentationFolder
from lrptrain.segmentation.generator import weights_checksum
from lrptrain.segmentation.images import image_batches
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.segmenter import Segmenter
from lrptrain.trainers.discover import find_model
from lrptrain.trainers.naming import class_names_or_numbers


def run_pipeline(
    classifier: Any,
    datamodule: Any,
    folder: Path,
    config: PseudoMaskConfig,
    training: Training,
    model: str | None = None,
    net: nn.Module | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> dict[str, Any]:
    """Export seeds and pseudo-masks of all splits, train a segmenter on those of the training split, and score both.

    The threshold is chosen on the validation images; the last epoch's segmenter is scored on those with a true mask.
    What is in the folder already is not made again.

    Args:
        classifier: The LightningModule, trained, or any classifier of images.
        datamodule: The datamodule of its images, without augmentation. Without true masks in validation and without
            a threshold in the config, the default threshold is taken.
        folder: The folder of the export (see `export_files`), which also holds `segmenter/` and `results.json`.
        config: How seeds and masks are made. Where it has no mean and std, those of the datamodule are used.
        training: How the segmenter is trained.
        model: Attribute path of the classifier's model on its module.
        net: The network to train, which returns logits `[batch, 1 + classes, h, w]`; None for a light decoder on a
            copy of the classifier's ViT.
        device: The device on which the classifier runs.
        progress: Whether to show progress bars.

    Returns:
        What `results.json` holds: the scores of the export by split, and `segmenter`: by split `mean_iou`,
        `foreground_mean_iou` and `per_class`.

    Raises:
        ValueError: If no image gives a mask.
    """
    config = _with_normalization(config, datamodule)
    network = find_model(classifier, model) if isinstance(classifier, pl.LightningModule) else classifier
    network = network.to(device).eval()
    sources = _sources(datamodule, device)

    def names(classes: int) -> Sequence[str]:
        return class_names_or_numbers(None, (datamodule, classifier), classes)

    seeds: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        if split in sources:
            seeds = run_export(network, config, sources[split], folder, split, names, sources.get("val"), progress)
    data = _data(folder, config, training)
    segmenter = _segmenter(folder, network, data, training, net, progress)
    results = {**seeds, "segmenter": _scored(segmenter, data)}
    write_json(folder / "results.json", results)
    return results


def _with_normalization(config: PseudoMaskConfig, datamodule: Any) -> PseudoMaskConfig:
    """Return the config, with the datamodule's mean and std where it has none."""
    attributes = {name: getattr(datamodule, name, None) for name in ("mean", "std")}
    options: dict[str, Any] = attributes | dict(getattr(datamodule, "hparams", {}))
    if config.mean is not None or options.get("mean") is None or options.get("std") is None:
        return config
    return replace(config, mean=list(options["mean"]), std=list(options["std"]))


def _sources(datamodule: Any, device: torch.device | str) -> dict[str, ImageSource]:
    """Return the images by split, of the splits that the datamodule has."""
    splits = [split for split in SPLITS if _makes(datamodule, split)]
    datamodule.prepare_data()
    datamodule.setup("fit")
    if "test" in splits:
        datamodule.setup("test")
    sources: dict[str, ImageSource] = {}
    for split in splits:
        loader = getattr(datamodule, f"{split}_dataloader")()
        first = next(iter(loader), None) if isinstance(loader, list | tuple) else loader
        if first is not None:
            sources[split] = _source(first, device)
    return sources


def _makes(datamodule: Any, split: str) -> bool:
    """Return whether a datamodule makes a split by itself: Lightning, of either package, defines all of them."""
    make = getattr(datamodule, f"{split}_dataloader", None)
    return make is not None and (make.__module__ or "").partition(".")[0] not in ("pytorch_lightning", "lightning")


def _source(loader: Any, device: torch.device | str) -> ImageSource:
    return lambda: image_batches(loader, to_device=lambda batch: move_data_to_device(batch, torch.device(device)))


def _data(folder: Path, config: PseudoMaskConfig, training: Training) -> SegmentationFolder:
    """Return images and pseudo-masks to train on, true masks to score on, as the classifier read them."""
    entries = [entry for entry in export_files.read_index(folder) if entry.status == "done"]
    if not any(entry.split == "train" for entry in entries):
        raise ValueError(
            f"no training image gave a mask: {export_files.describe_entries(export_files.read_index(folder))}"
        )
    normalization = {} if config.mean is None else {"mean": tuple(config.mean), "std": tuple(config.std or ())}
    data = SegmentationFolder(
        str(folder / export_files.JPEG_IMAGES),
        str(folder),
        len(export_files.read_classes(folder)),
        str(folder / "truth"),
        size=entries[0].size,
        smallest=training.smallest,
        batch_size=training.batch_size,
        **normalization,  # type: ignore[arg-type]
    )
    data.setup()
    return data


def _segmenter(
    folder: Path,
    classifier: nn.Module,
    data: SegmentationFolder,
    training: Training,
    net: nn.Module | None,
    progress: bool = False,
) -> Segmenter:
    """Return the trained segmenter, from the folder if it was trained before."""
    classes = data.plain.classes
    path = folder / "segmenter" / "segmenter.ckpt"
    # The seed decides the decoder's weights and the order of the images; the caller's random state stays.
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        if net is None:
            copied = copy.deepcopy(classifier).cpu()
            net = PatchDecoder(copied, classes, data.plain.size, frozen=training.frozen)
        settings = {**asdict(training), "weights": weights_checksum(net)}
        export_files.begin_export(folder / "segmenter", settings, export_files.read_classes(folder))
        segmenter = Segmenter(net, classes, training.lr, training.weight_decay)
        if path.exists():
            # The weights alone: what else the file says could name classes to import, and is known here.
            segmenter.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
            return segmenter
        segmenter.train()  # the classifier was evaluated
        trainer = _trainer(max_epochs=training.max_epochs, limit_val_batches=0, enable_progress_bar=progress)
        trainer.fit(segmenter, data.train_dataloader(), data.val_dataloader())
        trainer.save_checkpoint(path)
    return segmenter


def _scored(segmenter: Segmenter, data: SegmentationFolder) -> dict[str, dict[str, Any]]:
    """Score on the splits with true masks."""
    scores = {}
    segmenter.eval()
    for split in ("val", "test"):
        score = MaskScore(data.plain.classes)
        for batch in getattr(data, f"{split}_dataloader")() if len(data.splits[split]) else ():
            with torch.no_grad():
                score.update(segmenter.predict_step(batch, 0), batch["mask"])
            scores[split] = score
    return {split: to_lists(score.compute()) for split, score in scores.items()}


def _trainer(**options: Any) -> pl.Trainer:
    switches: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    return pl.Trainer(**switches, **options)
