"""Why is the watermark missed? What it moves, and what moves when surroundings, or the strip it lies in, are swapped.

    .venv/bin/python -m experiments.real_models.missed [--seeds 1]

Trains the plain arm of the watermark at the bottom, unwatched, which gives the same weights, and swaps by hand, with
several draws of donors where the monitor has one.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Bool, Float
from lrptrain.intervention.swap import default_margin, donors_by_prediction, outside_evidence, swap_pixels
from torch import Tensor
from torch.utils.data import DataLoader

from experiments import weights
from experiments.parallel import load
from experiments.real_models import cell
from experiments.real_models.samples import BREEDS, MARKED, Pets, pets
from experiments.records import append
from experiments.table import markdown, write_between
from lrptrain.cues.painting import dilate
from lrptrain.findings.statistics import bootstrap_interval
from lrptrain.models import ImageClassifier

HERE = Path(__file__).resolve().parent
RESULTS, MARKS = HERE / "results" / "missed.jsonl", ("<!-- missed -->", "<!-- end of missed -->")
PLACE, DRAWS, STRIP = "bottom", 5, 10
"""The mark's place, draws of donors, and rows of pixels at the lower edge that hold it."""


def run(seed: int) -> dict[str, Any]:
    """Train as `cell.run` does, and swap on the photographs that its monitor sees."""
    pl.seed_everything(seed, verbose=False)
    data = pets(cell.SIZE, seed)
    marked = {
        name: data[name].with_watermark(data[name].label == MARKED, **cell.PLACES[PLACE]) for name in ("train", "val")
    }
    module = ImageClassifier(len(BREEDS), "tiny_vit_5m_224", pretrained=str(weights.fetch("tiny_vit")), lr=cell.LR)
    trainer = pl.Trainer(
        max_epochs=cell.EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(marked["train"].samples(), cell.BATCH, shuffle=True))  # type: ignore[arg-type]
    model = module.eval()
    strip = torch.zeros_like(marked["val"].mask, dtype=torch.bool)
    strip[:, -STRIP:] = True
    return {
        "seed": seed,
        "the mark itself": mark_itself(model, data["val"]),
        "surroundings": swapped(model, marked["val"], outside_evidence(marked["val"].mask), painted_over=True),
        "strip": swapped(model, marked["val"], strip, painted_over=False),
    }


@torch.no_grad()
def probabilities(model: torch.nn.Module, images: Tensor) -> Float[Tensor, "n classes"]:
    """Of all classes."""
    return torch.cat([model(part).softmax(1) for part in images.split(cell.BATCH)])


def mark_itself(model: torch.nn.Module, plain: Pets) -> dict[str, float]:
    """By breed, how far the marked breed's probability rises with the mark on the image."""
    everywhere = plain.with_watermark(torch.ones(len(plain.label), dtype=torch.bool), **cell.PLACES[PLACE])
    with_mark, without = (probabilities(model, each.normalised)[:, MARKED] for each in (everywhere, plain))
    return {breed: (with_mark - without)[plain.label == i].mean().item() for i, breed in enumerate(BREEDS)}


def swapped(
    model: torch.nn.Module, shown: Pets, region: Bool[Tensor, "n size size"], painted_over: bool
) -> dict[str, Any]:
    """Fall of the answer's probability under another predicted class's pixels, and under the same class's.

    Args:
        model: It.
        shown: Photographs, those of the marked breed with the mark.
        region: What is swapped.
        painted_over: Whether the donor's pet is painted over first, as in swaps of surroundings.
    """
    x = shown.normalised
    before = probabilities(model, x)
    answer = before.argmax(1)
    mark = shown.label == MARKED

    def fall(draw: int, same: bool) -> tuple[np.ndarray, np.ndarray]:
        donors = torch.from_numpy(donors_by_prediction(answer.numpy(), np.arange(len(x)), draw, same))
        pet = dilate((shown.mask == 1)[donors], default_margin((cell.SIZE, cell.SIZE))) if painted_over else None
        after = probabilities(model, swap_pixels(x, region, x[donors], pet))
        return (before - after).gather(1, answer[:, None])[:, 0].numpy(), (mark != mark[donors]).numpy()

    others = [fall(draw, False) for draw in range(DRAWS)]
    falls, changes = (np.array(part) for part in zip(*others, strict=True))
    controls = np.array([fall(draw, True)[0] for draw in range(DRAWS)])
    differences = falls - controls
    mean, low, high = bootstrap_interval(differences.mean(0), 0.95)
    return {
        "fall": float(falls.mean()),
        "control": float(controls.mean()),
        "difference": [mean, low, high],
        "difference by draw": differences.mean(1).round(3).tolist(),
        "where the mark changes": float(falls[changes].mean()),
        "where it does not": float(falls[~changes].mean()),
    }


def table(runs: Mapping[str, Any]) -> str:
    """A row per swap."""
    rows, itself = [], []
    for found in runs.values():
        rises = ", ".join(f"{breed} {rise:.2f}" for breed, rise in found["the mark itself"].items())
        itself.append(f"Seed {found['seed']}: with the mark on it, {BREEDS[MARKED]}'s probability rises by: {rises}.")
        for name in ("surroundings", "strip"):
            row = found[name]
            mean, low, high = row["difference"]
            draws = row["difference by draw"]
            rows.append(
                {
                    "seed": str(found["seed"]),
                    "swapped": name,
                    "fall": f"{row['fall']:.2f}",
                    "control": f"{row['control']:.2f}",
                    "difference": f"{mean:.2f} ({low:.2f} to {high:.2f})",
                    "of single draws": f"{min(draws):.2f} to {max(draws):.2f}",
                    "fall where the mark changes": f"{row['where the mark changes']:.2f}",
                    "where it does not": f"{row['where it does not']:.2f}",
                }
            )
    return "\n\n".join([markdown(rows), *itself])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    torch.set_num_threads(1)
    for seed in range(parser.parse_args().seeds):
        if f"seed {seed}" not in load(RESULTS):
            append(RESULTS, {"key": f"seed {seed}", **run(seed)})
    write_between(HERE / "README.md", table(load(RESULTS)), *MARKS)


if __name__ == "__main__":
    main()
