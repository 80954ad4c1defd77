"""Train the small ViT of the vision experiments on CIFAR-10, from nothing, and keep its weights.

.venv/bin/python -m experiments.pretrain weights.safetensors
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from experiments.data import dataset
from experiments.vision import MEAN, STD, augment, fit, logits, vit

CLASSES, SIDE, EPOCHS, BATCH, LR = 10, 32, 16, 128, 2e-3


def load(split: str) -> tuple[Float[Tensor, "n 3 32 32"], Int[Tensor, " n"]]:
    """The images of `train` or `test`, normalised, and their classes in alphabetical order."""
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith(f"{split}/") and name.endswith(".jpg"))
        pixels = [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names]
    classes = sorted({name.split("/")[1] for name in names})
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(x)[:, None, None] for x in (MEAN, STD))
    return (images - mean) / std, torch.tensor([classes.index(name.split("/")[1]) for name in names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    torch.manual_seed(0)
    images, labels = load("train")

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(labels), (BATCH,), generator=generator)
        return augment(images[chosen], generator), labels[chosen]

    model = fit(vit(CLASSES, SIDE), draw, EPOCHS * len(labels) // BATCH, LR)
    shown, truth = load("test")
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, output)
    print(f"{output}: {(logits(model, shown).argmax(1) == truth).float().mean():.1%} of the test images are right")


if __name__ == "__main__":
    main()
