"""Pre-train a ViT on CIFAR-10, on a GPU if there is one: the small one of the vision experiments, or a ViT-S.

    .venv/bin/python -m experiments.pretrain.run --model vit_s --data cifar10_jpeg.zip --output vit_s.safetensors
    .venv/bin/python -m experiments.pretrain.run --model vit_s --smoke

A run that was cut off, or that `--minutes` ended, goes on when it is called again. `--smoke` takes a few steps on a few
images, to prove that everything works.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from experiments.data import dataset
from experiments.pretrain.cifar10 import load, normalised
from experiments.pretrain.recipes import RECIPES
from experiments.pretrain.training import Training
from experiments.records import append
from experiments.vision import logits

HERE = Path(__file__).resolve().parent
SMOKE_STEPS, SMOKE_BATCH = 20, 32


def accuracy(model: nn.Module, data: Path, every: int, device: str) -> tuple[float, int]:
    """Of every so manieth test image; and how many these are."""
    pixels, truth = (x.to(device) for x in load(data, "test", every))
    right = logits(model.eval(), normalised(pixels)).argmax(1) == truth
    return float(right.float().mean()), len(truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(RECIPES), default="small")
    parser.add_argument("--data", type=Path, help="zip of CIFAR-10, else as experiments/data.py says")
    parser.add_argument("--output", type=Path, help="safetensors file, else in this folder's runs/")
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which it stops; call it again")
    parser.add_argument("--smoke", action="store_true", help="a few steps on every fiftieth image")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    if arguments.smoke:
        recipe = replace(recipe, batch=SMOKE_BATCH)
    name = f"vit_cifar10_{arguments.model}{'_smoke' * arguments.smoke}"
    output = arguments.output or HERE / "runs" / f"{name}.safetensors"
    data = dataset("cifar10", arguments.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pixels, labels = (x.to(device) for x in load(data, "train", 50 if arguments.smoke else 1))
    epochs = recipe.epochs if arguments.epochs is None else arguments.epochs
    steps = SMOKE_STEPS if arguments.smoke else round(epochs * len(labels) / recipe.batch)
    training = Training(recipe, steps, arguments.seed, pixels.device)
    state = output.with_suffix(".state.pt")
    if state.exists() and not arguments.smoke:
        training.load(state)
    if not training.run(pixels, labels, state, 60 * arguments.minutes):
        print(f"{training.done} of {steps} steps in {training.seconds:.0f} s: call it again to go on")
        return
    share, tested = accuracy(training.model, data, 100 if arguments.smoke else 1, device)
    save_file({name: x.cpu().contiguous() for name, x in training.model.state_dict().items()}, output)
    report = {"model": arguments.model, "device": device, "steps": steps, "batch": recipe.batch}
    report |= {"seconds": round(training.seconds, 1), "test_images": tested, "accuracy": round(share, 4)}
    append(HERE / "results" / "runs.jsonl", report)
    print(json.dumps(report), f"-> {output}")


if __name__ == "__main__":
    main()
