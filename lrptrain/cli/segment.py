"""From image labels to masks and a segmenter, from the command line."""

from pathlib import Path
from typing import Any

import torch

from lrptrain.cli.attribute import load_module
from lrptrain.cli.compare import load_data
from lrptrain.cli.lightning import lightning_cli
from lrptrain.relevance.registry import get_method
from lrptrain.segmentation.config import PseudoMaskConfig
from lrptrain.segmentation.export import KINDS
from lrptrain.segmentation.export_files import read_index, summarize
from lrptrain.segmentation.pipeline import Training, run_pipeline


def segment(
    checkpoint: str | None = None,
    data: str | None = None,
    folder: str = "segmentation",
    masks: PseudoMaskConfig = PseudoMaskConfig(),  # noqa: B008
    training: Training = Training(),  # noqa: B008
    module: str | None = None,
    model: str | None = None,
    device: str | None = None,
) -> None:
    """Seeds, refined pseudo-masks and a segmenter from a classifier of images, with the mean IoU of each.

    Writes an export in VOC's layout, the segmenter and results.json to a folder. What is there already is not made
    again: started anew, it goes on.

    Args:
        checkpoint: Of the classifier; without it one is trained by --data, a config of `lrptrain fit` with its model.
        data: A config of `lrptrain fit`, of which the `data:` section is read; else the data that the checkpoint was
            trained with, where it says so.
        folder: Of the results.
        masks: How seeds and pseudo-masks are made.
        training: How the segmenter is trained.
        module: Dotted path of the LightningModule; else the checkpoint's own, or this project's for images.
        model: Attribute path of the model on it, where it has no forward of its own.
        device: "cpu", "cuda" ... of the classifier; else the GPU if there is one.

    Raises:
        ValueError: If neither a checkpoint nor a config is given, or no threshold can be chosen.
    """
    get_method(masks.method, masks.options)
    root = Path(folder)
    checkpoint = checkpoint or _trained(data, root / "classifier.ckpt")
    saved = torch.load(checkpoint, map_location="cpu", weights_only=False).get("hyper_parameters", {})
    classifier = load_module(module or saved.get("_class_path", "lrptrain.models.ImageClassifier"), checkpoint)
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    results = run_pipeline(classifier, load_data(checkpoint, data), root, masks, training, model, device=where)
    print(f"{summarize(read_index(root))}\n\n{table(results)}\n\n{root / 'results.json'}", flush=True)


def table(results: dict[str, Any]) -> str:
    """Mean IoU by split, as Markdown; of pseudo-masks over the pixels that are not ignored."""
    splits = [split for split in ("train", "val", "test") if split in results]
    rows = ["| mean IoU | seeds | refined | pseudo-masks | segmenter |", "| --- | --- | --- | --- | --- |"]
    for split in splits:
        own = {**results[split], "segmenter": results["segmenter"].get(split)}
        cells = [_percent(own.get(kind)) for kind in (*KINDS, "segmenter")]
        rows.append(f"| {split} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _percent(score: dict[str, Any] | None) -> str:
    if not score:
        return "-"
    part = f" on {score['decided']:.0%} of the pixels" if "decided" in score else ""
    return f"{100 * score['mean_iou']:.1f}{part}"


def _trained(config: str | None, path: Path) -> str:
    """The checkpoint of a classifier trained by a config of `lrptrain fit`, once."""
    if path.exists():
        return str(path)
    if config is None:
        raise ValueError("give the checkpoint of a classifier, or the config that trains one (--data)")
    made = lightning_cli(["--config", config], run=False, save_config_callback=None)
    made.trainer.fit(made.model, made.datamodule)
    made.trainer.save_checkpoint(path)
    return str(path)
