"""`lrptrain segment`: from image labels to masks and a segmenter."""

from pathlib import Path
from typing import Any

from lrptrain.cli.source import read_source
from lrptrain.segmentation.config import THRESHOLD_LINE, PseudoMaskConfig, Training


def segment(
    output: str = "segmentation",
    masks: PseudoMaskConfig = PseudoMaskConfig(),  # noqa: B008
    training: Training = Training(),  # noqa: B008
    **options: Any,
) -> None:
    """Seeds, refined pseudo-masks and a segmenter from a classifier of images, with the mean IoU of each.

    `lrptrain segment my_module:function`, where the function returns (classifier, datamodule), or a dict of both with
    the `model`, the attribute path of the network on a LightningModule. Writes an export in VOC's layout, the segmenter
    and results.json to a folder. What is there already is not made again: started anew, it continues.

    Args:
        output: Folder to which the results are written, and from which an earlier run is continued.
        masks: How seeds and pseudo-masks are made.
        training: How the segmenter is trained.
        **options: As for `read_source`.

    Raises:
        ValueError: If there is no datamodule, or no threshold can be chosen.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.relevance.default import check_method
    from lrptrain.segmentation.export_files import describe_entries, read_index
    from lrptrain.segmentation.pipeline import run_pipeline
    from lrptrain.trainers.discover import device_of

    check_method(masks.method, masks.options)  # a wrong name ends it here, before anything is loaded
    root = Path(output)
    returned = read_source(("classifier", "datamodule"), **options)
    if not hasattr(returned["datamodule"], "train_dataloader"):
        raise ValueError("masks are made for every split: return (classifier, datamodule), not a loader")
    if masks.mean is None:
        print(
            "the colours of each image are stretched from its least to its greatest: --masks.mean and --masks.std say "
            "how images were normalised"
        )
    if masks.threshold is None and not (root / "thresholds.json").exists():
        print(THRESHOLD_LINE.replace("`threshold` in the config", "--masks.threshold"), flush=True)
    given = {"folder": root, "config": masks, "training": training, "device": device_of(returned["classifier"])}
    results = run_pipeline(**{**given, **returned})
    print(f"{describe_entries(read_index(root))}\n\n{iou_table(results)}\n\n{root / 'results.json'}", flush=True)


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
