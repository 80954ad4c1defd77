"""All stages from image labels to a segmenter, from one config."""

import copy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor, nn
from torch.utils.data import Dataset

from lrptrain.data.common import SPLITS, loader
from lrptrain.data.pictures import open_picture, read_mask, to_image
from lrptrain.files import read_text, write_json
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import PseudoMaskConfig, Training
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.export import run_export, to_lists, weights_checksum
from lrptrain.segmentation.images import image_batches
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.segmenter import Segmenter, random_windows
from lrptrain.trainers.discover import find_model
from lrptrain.trainers.naming import class_names_or_numbers


class ExportedMasks(Dataset[dict[str, Tensor]]):
    """Dicts of `image` and `mask` (0 background, 1 + class, 255 ignored) of the images on a list of an export.

    `folder` is the export or its `truth`; without a list of the split it has no image. Both are resized to `size`,
    images are normalised with the config's mean and std, else with 0.5, and cut by `random_windows` with `smallest`. A
    mask with a value beyond the classes is refused.
    """

    def __init__(
        self,
        folder: Path,
        images: Path,
        split: str,
        config: PseudoMaskConfig,
        classes: int,
        size: tuple[int, int],
        smallest: float | None = None,
    ) -> None:
        listed = folder / export_files.LISTS / f"{split}.txt"
        self.names = read_text(listed).split() if listed.is_file() else []
        self.folder, self.images = folder, images
        self.classes, self.size, self.smallest = classes, size, smallest
        self.mean, self.std = (
            torch.tensor([0.5] * 3 if values is None else list(values))[:, None, None]
            for values in (config.mean, config.std)
        )

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        image = (to_image(open_picture(self.images / f"{name}.jpg"), self.size) - self.mean) / self.std
        mask = read_mask(self.folder / export_files.MASKS / f"{name}.png", self.size, self.classes, resize=True)
        if self.smallest is not None:
            image, mask = (x[0] for x in random_windows(image[None], mask[None], self.smallest))
        return {"image": image, "mask": mask}


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

    The classifier is a trained LightningModule, with its model at the path `model`, or any classifier of images; the
    datamodule has its images, without augmentation. The folder is that of the export (see `export_files`), which also
    holds `segmenter/` and `results.json`: what is returned, `score_export` and by split the scores of the `segmenter`.
    """
    network = find_model(classifier, model) if isinstance(classifier, pl.LightningModule) else classifier
    network = network.to(device).eval()
    to_device = partial(move_data_to_device, device=torch.device(device))
    sources = {split: partial(image_batches, own, to_device=to_device) for split, own in _loaders(datamodule).items()}
    names = partial(class_names_or_numbers, None, (datamodule, classifier))
    results: dict[str, Any] = {}
    for split, source in sources.items():
        results = run_export(network, config, source, folder, split, names, sources.get("val"), progress=True)
    done = [entry for entry in export_files.read_index(folder) if entry.status == "done"]
    if not any(entry.split == "train" for entry in done):
        raise ValueError(f"no training image gave a mask; see {folder / 'index.jsonl'}")
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
    return {split: x[0] if isinstance(x, list | tuple) else x for split, x in made.items() if x not in (None, [], ())}


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
