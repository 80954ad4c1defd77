"""Weak supervision from folders in the form of Pascal VOC and COCO, by the two commands of configs/voc.yaml.

.venv/bin/python -m experiments.segment_folders.run
.venv/bin/python -m experiments.segment_folders.run --tables    # from what is saved
"""

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from skimage.segmentation import random_walker
from torch import Tensor

from experiments.intervals import estimate
from experiments.mask_scores import mean_iou_by_image
from experiments.parallel import Run, complete, load
from experiments.per_method import per_image
from experiments.pets import RUNS
from experiments.segment_folders.made import CLASSES, drawn, kinds, write_coco, write_voc
from experiments.table import markdown, write_between
from lrptrain.cli import main as lrptrain
from lrptrain.data import VOCFolder
from lrptrain.data.segmentation_folders import SceneDataset
from lrptrain.models import ImageClassifier
from lrptrain.segmentation.masks import best_threshold, label_map
from lrptrain.segmentation.refinement import pixel_adaptive
from lrptrain.segmentation.seeds import seed_maps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results" / "seeds.jsonl"
SOURCES = ("centre prior", "attnlrp", "generic_attention", "transformer_attribution", "rollout")
REFINED = ("none", "pixel_adaptive", "random walker")
FORMS = {"VOC": write_voc, "COCO": write_coco}
NEAR = (1, 2, 4)
"""Neighbours fit for 32 pixels."""
BETA = 130.0
"""Of the random walker: its library's default."""
OPTIONS = (
    "--model.model_kwargs={img_size: 32, patch_size: 4, embed_dim: 64, depth: 4, num_heads: 4}",
    "--model.num_classes=10",
    "--model.lr=0.0015",
    "--data.size=32",
    "--data.splits=[train,val,test]",
)
Maps = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """A form and a seed."""

    form: str
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.form}, seed {self.seed}"


def measured(task: Task) -> Run:
    """Write the folder, run both commands, and score what they leave; of VOC's form, sources and refinements, too."""
    torch.set_num_threads(1)
    folder = RUNS / "segment_folders" / f"{task.form}_{task.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    FORMS[task.form](folder / "data", drawn(task.seed))
    config = ["--config", str(ROOT / "configs" / "voc.yaml"), f"--seed_everything={task.seed}", *OPTIONS]
    if task.form == "COCO":
        config.append("--data=lrptrain.data.COCOFolder")
    config.append(f"--data.root={folder / 'data'}")
    config += [f"--data.classes={json.dumps(CLASSES)}"] if task.form == "VOC" else []
    fit = ["fit", *config, "--trainer.max_epochs=24", f"--trainer.default_root_dir={folder}", "--trainer.logger=false"]
    lrptrain([*fit, f"--trainer.callbacks.dirpath={folder}", "--trainer.enable_progress_bar=false"])
    masks = ["--masks.masks=classes", "--masks.scales=[1]", "--masks.flip=false", "--masks.threshold=null"]
    masks += [
        "--masks.mean=[0.5,0.5,0.5]",
        "--masks.std=[0.5,0.5,0.5]",
        "--masks.refine_options={dilations: [1, 2, 4]}",
    ]
    masks += ["--training.lr=0.001", "--training.smallest=null", "--training.batch_size=32"]  # as in segment_scenes
    kept = folder / "voc.ckpt"
    said_to_fit = str(folder / "config.yaml")
    lrptrain(["segment", "--config", said_to_fit, f"--ckpt_path={kept}", f"--output={folder / 'masks'}", *masks])
    said = json.loads((folder / "masks" / "results.json").read_text(encoding="utf-8"))
    pipeline = {stage: said["test"][stage]["mean_iou"] for stage in ("seeds", "refined", "masks")}
    run: Run = {"pipeline": {**pipeline, "segmenter": said["segmenter"]["test"]["mean_iou"]}}
    return {**run, **(_sources(kept, folder / "data", task.seed) if task.form == "VOC" else {})}


def _sources(kept: Path, folder: Path, seed: int) -> Run:
    data = VOCFolder(str(folder), splits=("train", "val", "test"), classes=CLASSES, size=32)
    data.setup()
    model = ImageClassifier.load_from_checkpoint(kept, map_location="cpu", weights_only=True).net.eval()
    batches = {split: _stacked(data.splits[split]) for split in ("val", "test")}
    found: dict[str, dict[str, list[float]]] = {}
    for source in SOURCES:
        maps = {split: _maps(model, source, batch) for split, batch in batches.items()}
        for refinement in REFINED:
            by_split = {split: _refined(refinement, maps[split], batches[split]["pixels"]) for split in maps}
            at, _ = best_threshold(by_split["val"], batches["val"]["mask"])
            scores = mean_iou_by_image(label_map(by_split["test"], at), batches["test"]["mask"])
            found.setdefault(source, {})[refinement] = per_image(scores)
            parts = {kind: [i for i, own in enumerate(kinds(drawn(seed)["test"])) if own == kind] for kind in KINDS}
            for kind, index in parts.items():
                own = mean_iou_by_image(label_map(by_split["test"][index], at), batches["test"]["mask"][index])
                found[source][f"{refinement}, {kind}"] = per_image(own)
    return {"sources": found}


KINDS = ("one thing", "two of one class", "two of two classes")


def _stacked(data: SceneDataset) -> Maps:
    items = [data[i] for i in range(len(data))]
    batch = {name: torch.stack([item[name] for item in items]) for name in ("image", "mask", "label")}
    return {**batch, "pixels": batch["image"] * 0.5 + 0.5}


def _maps(model: torch.nn.Module, source: str, batch: Maps) -> Tensor:
    present = batch["label"] > 0.5
    if source == "centre prior":
        side = torch.linspace(-1, 1, batch["image"].shape[-1])
        prior = torch.exp(-2 * (side[:, None].square() + side.square()))
        return prior * present[:, :, None, None].float()
    return seed_maps(model, batch["image"], present, source, {}, (1.0,), False, 64)


def _refined(refinement: str, maps: Tensor, pixels: Tensor) -> Tensor:
    steps: dict[str, Callable[[], Tensor]] = {
        "none": lambda: maps,
        "pixel_adaptive": lambda: pixel_adaptive(pixels, maps, NEAR),
        "random walker": lambda: torch.stack([_walked(*each) for each in zip(maps, pixels, strict=True)]),
    }
    return steps[refinement]()


def _walked(maps: Tensor, pixels: Tensor) -> Tensor:
    """Probabilities by scikit-image's random walker, from the surest tenth of each class and half of the background."""
    present = [number for number, own in enumerate(maps) if own.max() > 0]
    top, winner = maps.max(0)
    marks = torch.zeros(top.shape, dtype=torch.long)
    marks[top <= top.quantile(0.5)] = 1
    for place, number in enumerate(present):
        mine = (winner == number) & (maps[number] >= maps[number].quantile(0.9)) & (maps[number] > 0)
        marks[mine] = 2 + place
    if len(marks.unique()) < 2 + len(present):
        return maps  # a class that is nowhere the surest has no seed to walk from
    likely = random_walker(pixels.permute(1, 2, 0).numpy(), marks.numpy(), BETA, return_full_prob=True, channel_axis=2)
    refined = torch.zeros_like(maps)
    refined[present] = torch.as_tensor(likely[1:], dtype=maps.dtype)
    return refined


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    runs = list(load(RESULTS).values())
    of_voc = [run["sources"] for run in runs if "sources" in run]
    rows = []
    for source in SOURCES:
        for refinement in REFINED:
            names = {"all": refinement, **{kind: f"{refinement}, {kind}" for kind in KINDS}}
            cells = {title: _cell([run[source][key] for run in of_voc]) for title, key in names.items()}
            rows.append({"seeds": source, "refinement": refinement, **cells})
    stages = []
    for form in FORMS:
        own = [run["pipeline"] for run in runs if run["key"].startswith(form)]
        cells = {stage: ", ".join(f"{100 * run[stage]:.1f}" for run in own) for stage in own[0]} if own else {}
        stages.append({"form": form, **cells})
    return {"sources": markdown(rows), "pipeline": markdown(stages)}


def _cell(shares: list[list[float]]) -> str:
    found = estimate([100 * torch.tensor(own).double().numpy() for own in shares], same_samples=True)
    return f"{found.mean:.1f} ± {found.half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", action="store_true", help="only write the tables of what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        # Both forms hold the same scenes: one seed shows that they are read alike.
        tasks = [*(Task("VOC", seed) for seed in range(arguments.seeds)), Task("COCO", 0)]
        complete(RESULTS, tasks, measured, arguments.workers)
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
