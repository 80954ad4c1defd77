"""The worst group of published data: plain training, group DRO, last layers, and the swap of what is found.

    .venv/bin/python -m experiments.worst_group.run celeba --root FOLDER [--arms ...] [--seeds 3] [--limit 500]

A line for every arm and seed in `results/<data>.jsonl`; what was cut off goes on with what is missing.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

import lrptrain
from experiments.known_rivals import GroupDROCallback
from experiments.parallel import load
from experiments.records import append, named
from experiments.table import markdown
from experiments.worst_group.readers import MEAN, READERS, STD, Published, batched
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.data.texts import fast_tokenizer
from lrptrain.models import ImageClassifier, TextClassifier
from lrptrain.models.classifier import Classifier

HERE = Path(__file__).resolve().parent
PLAIN, DRO, LAYER, SWAP = "plain", "group DRO", "last layer by groups", "swap of the first cue that is named"
ARMS = (PLAIN, DRO, LAYER, SWAP)
INSPECTED = 256
"""Validation samples that the report is of, without annotations: none of these data has any."""


def network(data: Published, model: str) -> Classifier:
    """A pretrained network of timm or of Hugging Face."""
    if data.images:
        return ImageClassifier(len(data.classes), model, pretrained=True, lr=1e-4)
    return TextClassifier(len(data.classes), model, lr=2e-5)


def run(data: Published, arm: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and test one arm."""
    pl.seed_everything(seed, verbose=False)
    tokenizer = None if data.images else fast_tokenizer(options.tokenizer or options.model)
    loader = partial(DataLoader, batch_size=options.batch, collate_fn=partial(batched, tokenizer=tokenizer))
    train: Any = data.splits["train"]
    held_out: Any = data.splits["val"]

    def trained(callbacks: list[pl.Callback], by_group: bool = False) -> Classifier:
        pl.seed_everything(seed, verbose=False)
        made = network(data, options.model)
        group = torch.tensor([each["group"] for each in train])
        weights = 1 / torch.bincount(group, minlength=data.groups)[group].float()
        sampler = WeightedRandomSampler(weights.tolist(), len(group)) if by_group else None
        quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
        trainer = pl.Trainer(max_epochs=options.epochs, callbacks=callbacks, **quiet)
        trainer.fit(made, loader(train, shuffle=sampler is None, sampler=sampler))
        return made.eval()

    if arm == DRO:
        return tested(trained([GroupDROCallback(data.groups)], by_group=True), loader, data)
    model = trained([])
    if arm == LAYER:
        lrptrain.repair(model, loader(held_out), balance="groups", seed=seed).apply(model)
    if arm != SWAP:
        return tested(model, loader, data)
    show = lrptrain.Show(class_names=list(data.classes), **({"mean": MEAN, "std": STD} if data.images else {}))
    found = lrptrain.inspect(model, loader(held_out[:INSPECTED]), tokenizer=tokenizer, show=show).findings
    swapped = [each for each in found if each.needs_review][:1]
    if swapped:  # else nobody would train anew
        model = trained([RelevanceGuidance("swap", swap=swapped, tokenizer=tokenizer)])
    return {**tested(model, loader, data), "named": named(found)}


@torch.no_grad()
def tested(model: Classifier, loader: Callable[..., DataLoader], data: Published) -> dict[str, Any]:
    """Per group how many there are and how many are right, and the share of all that is right."""
    split: Any = data.splits["test"]
    inputs = [{name: batch[name] for name in model.batch_keys} | {"label": batch["label"]} for batch in loader(split)]
    right = torch.cat(
        [model(**{k: x for k, x in each.items() if k != "label"}).argmax(1) == each["label"] for each in inputs]
    )
    counts: dict[int, list[int]] = {}
    for sample, is_right in zip(split, right.tolist(), strict=True):
        for group in sample["groups"]:
            total = counts.setdefault(group, [0, 0])
            total[0] += 1
            total[1] += is_right
    return {"accuracy": right.float().mean().item(), "groups": {str(each): counts[each] for each in sorted(counts)}}


def table(runs: list[dict[str, Any]]) -> str:
    """Accuracy and that of the worst group, the mean over seeds and each of them."""
    rows = []
    for arm in ARMS:
        mine = [run for run in runs if run["arm"] == arm]
        worst = [min(right / count for count, right in run["groups"].values()) for run in mine]
        if mine:
            every = ", ".join(f"{each:.3f}" for each in worst)
            accuracy = f"{np.mean([run['accuracy'] for run in mine]):.3f}"
            rows.append({"training": arm, "accuracy": accuracy, "worst group": f"{np.mean(worst):.3f} ({every})"})
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(READERS))
    parser.add_argument("--root", type=Path, required=True, help="the folder of the published files")
    parser.add_argument("--model", help="of timm for images, of Hugging Face for texts")
    parser.add_argument("--tokenizer", help="if it is not the model's")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--limit", type=int, help="samples of each split")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    data = READERS[options.data](options.root, options.limit)
    options.model = options.model or ("vit_small_patch16_224" if data.images else "bert-base-uncased")
    path = options.results / f"{options.data}.jsonl"
    for seed in range(options.seeds):
        for arm in options.arms:
            key = f"{arm}, {options.model}, {options.epochs} epochs, {options.limit or 'all'}, seed {seed}"
            if key not in load(path):
                append(path, {"key": key, "arm": arm, "seed": seed, **run(data, arm, seed, options)})
    print(table(list(load(path).values())))


if __name__ == "__main__":
    main()
