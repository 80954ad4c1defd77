"""`lrptrain segment`: from image labels to masks and a segmenter."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrptrain.segmentation.config import THRESHOLD_LINE, PseudoMaskConfig, Training

if TYPE_CHECKING:
    from lrptrain.cli.checkpoint import Checkpoint


def segment(
    checkpoint: str | None = None,
    data: str | None = None,
    output: str = "segmentation",
    masks: PseudoMaskConfig = PseudoMaskConfig(),  # noqa: B008
    training: Training = Training(),  # noqa: B008
    module: str | None = None,
    model: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Seeds, refined pseudo-masks and a segmenter from a classifier of images, with the mean IoU of each.

    Writes an export in VOC's layout, the segmenter and results.json to a folder. What is there already is not made
    again: started anew, it goes on.

    Args:
        checkpoint: Path of the classifier's checkpoint; without it one is trained by --data, a config of
            `lrptrain fit` with its model.
        data: package.DataModule, "package.DataModule(argument=value)", or a config of which the `data:` section is
            read; else the data that the checkpoint was trained with, where it says so.
        output: Folder to which the results are written, and from which an earlier run is continued.
        masks: How seeds and pseudo-masks are made.
        training: How the segmenter is trained.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        device: "cpu", "cuda" ... of the classifier; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        ValueError: If neither a checkpoint nor a config is given, or no threshold can be chosen.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.datasets import default_device, load_data
    from lrptrain.cli.modules import load_module
    from lrptrain.relevance.default import check_method
    from lrptrain.segmentation.export_files import describe_entries, read_index
    from lrptrain.segmentation.pipeline import run_pipeline

    check_method(masks.method, masks.options)  # a wrong name ends it here, not after a training
    root = Path(output)
    saved = read_checkpoint(checkpoint or _trained(data, root / "classifier.ckpt"), trust)
    if checkpoint is None:
        module = module or data  # the config that trained it names the class of the user's module
    classifier = load_module(saved, True, module)
    source = load_data(saved, data)
    if not hasattr(source, "train_dataloader"):
        raise ValueError("masks are made for every split: name a LightningDataModule in --data, not a loader")
    masks = _with_normalisation(masks, classifier, saved, source)
    if masks.threshold is None and not (root / "thresholds.json").exists():
        print(THRESHOLD_LINE.replace("`threshold` in the config", "--masks.threshold"), flush=True)
    results = run_pipeline(classifier, source, root, masks, training, model, device=default_device(device))
    print(f"{describe_entries(read_index(root))}\n\n{iou_table(results)}\n\n{root / 'results.json'}", flush=True)


def _with_normalisation(masks: PseudoMaskConfig, classifier: Any, saved: "Checkpoint", source: Any) -> PseudoMaskConfig:
    """Return the config with the mean and std of the images where it has none, and say whose they are."""
    from lrptrain.cli.normalisation import find_normalisation

    if masks.mean is not None:
        return masks
    try:
        normalisation = find_normalisation(classifier, saved, source)
    except ValueError:
        print(
            "nothing says for sure how the images were normalised (--masks.mean and --masks.std would): their colours "
            "are stretched from the least to the greatest of each image"
        )
        return masks
    print(normalisation)
    return replace(masks, mean=list(normalisation.mean), std=list(normalisation.std))


def iou_table(results: dict[str, Any]) -> str:
    """Mean IoU by split, as Markdown; of pseudo-masks over the pixels that are not ignored."""
    from lrptrain.segmentation.export import MASK_FOLDERS

    splits = [split for split in ("train", "val", "test") if split in results]
    rows = ["| mean IoU | seeds | refined | pseudo-masks | segmenter |", "| --- | --- | --- | --- | --- |"]
    for split in splits:
        scores = {**results[split], "segmenter": results["segmenter"].get(split)}
        cells = [_percent(scores.get(kind)) for kind in (*MASK_FOLDERS, "segmenter")]
        rows.append(f"| {split} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _percent(score: dict[str, Any] | None) -> str:
    if not score:
        return "-"
    part = f" on {score['decided']:.0%} of the pixels" if "decided" in score else ""
    return f"{100 * score['mean_iou']:.1f}{part}"


def _trained(config: str | None, path: Path) -> str:
    """The checkpoint of a classifier trained by a config of `lrptrain fit`, once."""
    from lrptrain.cli.dotted import is_config
    from lrptrain.cli.lightning import lightning_cli

    if path.exists():
        return str(path)
    if config is None or not is_config(config):
        raise ValueError("give the checkpoint of a classifier, or the config that trains one (--data)")
    # As `lrptrain fit --config` would, but without a copy of the config that a second start would refuse to replace.
    cli = lightning_cli(
        ["--config", config], run=False, save_config_callback=None, parser_kwargs={"exit_on_error": False}
    )
    cli.trainer.fit(cli.model, cli.datamodule)
    cli.trainer.save_checkpoint(path)
    return str(path)
