"""All stages from image labels to a segmenter, from one config."""

import copy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import move_data_to_device
from torch import nn

from lrptrain.data.common import SPLITS, loader
from lrptrain.files import write_json
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig, Training
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.export import run_export, to_lists, weights_checksum
from lrptrain.segmentation.folder import ExportedMasks
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
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Export seeds and pseudo-masks of all splits, train a segmenter on those of the training split, and score both.

    What is in the folder already is not made again.

    Args:
        classifier: The LightningModule, trained, or any classifier of images.
        datamodule: The datamodule of its images, without augmentation.
        folder: The folder of the export (see `export_files`), which also holds `segmenter/` and `results.json`.
        config: How seeds and masks are made.
        training: How the segmenter is trained.
        model: Attribute path of the classifier's model on its module.
        device: The device on which the classifier runs.

    Returns:
        What `results.json` holds: `score_export`, and by split the scores of the `segmenter`.

    Raises:
        ValueError: If no image gives a mask.
    """
    network = find_model(classifier, model) if isinstance(classifier, pl.LightningModule) else classifier
    network = network.to(device).eval()
    loaders = _loaders(datamodule)
    sources = {
        split: lambda own=own: image_batches(own, to_device=lambda batch: move_data_to_device(batch, device))
        for split, own in loaders.items()
    }

    def names(classes: int) -> Sequence[str]:
        return class_names_or_numbers(None, (datamodule, classifier), classes)

    results: dict[str, Any] = {}
    for split, source in sources.items():
        results = run_export(network, config, source, folder, split, names, sources.get("val"), progress=True)
    done = [entry for entry in export_files.read_index(folder) if entry.status == "done"]
    if not any(entry.split == "train" for entry in done):
        raise ValueError(
            f"no training image gave a mask: {export_files.describe_entries(export_files.read_index(folder))}"
        )
    classes, size = len(export_files.read_classes(folder)), done[0].size
    images = folder / export_files.JPEG_IMAGES
    train = ExportedMasks(folder, images, "train", config, classes, size, training.smallest)
    held_out = {
        split: ExportedMasks(folder / "truth", images, split, config, classes, size) for split in ("val", "test")
    }
    segmenter = _segmenter(folder, network, train, training)
    results["segmenter"] = {
        split: _scored(segmenter, data, training.batch_size) for split, data in held_out.items() if len(data)
    }
    write_json(folder / "results.json", results)
    return results


def _loaders(datamodule: Any) -> dict[str, Any]:
    """Return the loaders by split, of the splits that the datamodule makes by itself: Lightning defines all of them."""
    makes = {split: getattr(datamodule, f"{split}_dataloader", None) for split in SPLITS}
    own = {
        split: make
        for split, make in makes.items()
        if make is not None and (make.__module__ or "").partition(".")[0] not in ("pytorch_lightning", "lightning")
    }
    datamodule.prepare_data()
    datamodule.setup("fit")
    if "test" in own:
        datamodule.setup("test")
    made = {split: make() for split, make in own.items()}
    firsts = {split: next(iter(x), None) if isinstance(x, list | tuple) else x for split, x in made.items()}
    return {split: first for split, first in firsts.items() if first is not None}


def _segmenter(folder: Path, classifier: nn.Module, train: ExportedMasks, training: Training) -> Segmenter:
    """Return the trained segmenter, from the folder if it was trained before."""
    path = folder / "segmenter" / "segmenter.ckpt"
    # The seed decides the decoder's weights and the order of the images; the caller's random state stays.
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        net = PatchDecoder(copy.deepcopy(classifier).cpu(), train.classes, train.size)
        settings = {**asdict(training), "weights": weights_checksum(net)}
        export_files.begin_export(folder / "segmenter", settings, export_files.read_classes(folder))
        segmenter = Segmenter(net, training.lr, training.weight_decay)
        if path.exists():
            # The weights alone: what else the file says could name classes to import, and is known here.
            segmenter.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
            return segmenter
        segmenter.train()  # the classifier was evaluated
        trainer = pl.Trainer(
            max_epochs=training.max_epochs, logger=False, enable_checkpointing=False, enable_model_summary=False
        )
        trainer.fit(segmenter, loader(train, training.batch_size, shuffle=True))
        trainer.save_checkpoint(path)
    return segmenter


@torch.no_grad()
def _scored(segmenter: Segmenter, data: ExportedMasks, batch_size: int) -> dict[str, Any]:
    segmenter.eval()
    score = MaskScore(data.classes)
    for batch in loader(data, batch_size):
        score.update(segmenter.predict_step(batch, 0), batch["mask"])
    return to_lists(score.compute())
