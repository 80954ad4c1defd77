"""Pre-train the small ViT of the vision experiments on CIFAR-10, on a GPU if there is one.

    .venv/bin/python -m experiments.pretrain.run --data cifar10_jpeg.zip --output vit_cifar10.safetensors
    .venv/bin/python -m experiments.pretrain.run --smoke

`--smoke` takes a few steps on a few images, to prove that everything works.
"""

import argparse
import io
import json
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from experiments.data import dataset
from experiments.records import append
from experiments.vision import MEAN, STD, augment, fit, logits, vit

HERE = Path(__file__).resolve().parent


def load(path: Path, split: str, every: int) -> tuple[UInt8[Tensor, "n 3 32 32"], Int[Tensor, " n"]]:
    """Every so manieth image of `train` or `test`, and its class in alphabetical order."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith(f"{split}/") and name.endswith(".jpg"))
        classes = sorted({name.split("/")[1] for name in names})
        names = names[::every]
        pixels = [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names]
    labels = torch.tensor([classes.index(name.split("/")[1]) for name in names])
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous(), labels


def normalised(pixels: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
    mean, std = (torch.tensor(x, device=pixels.device)[:, None, None] for x in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


def mixed(images: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """CutMix for the whole batch (Yun et al. 2019): one rectangle comes from the next image, and so do its labels."""
    height, width = images.shape[-2:]
    area, y, x = torch.rand(3, generator=generator, device=images.device).tolist()
    rows, columns = round(height * area**0.5), round(width * area**0.5)
    top, left = round(y * (height - rows)), round(x * (width - columns))
    images = images.clone()
    images[..., top : top + rows, left : left + columns] = images.roll(1, 0)[
        ..., top : top + rows, left : left + columns
    ]
    share = rows * columns / (height * width)
    return images, (1 - share) * targets + share * targets.roll(1, 0)


def pretrain(
    pixels: UInt8[Tensor, "n 3 32 32"], labels: Int[Tensor, " n"], steps: int, batch: int, lr: float, seed: int
) -> torch.nn.Module:
    """Windows, mirror images, CutMix in half of the batches, label smoothing 0.1."""
    torch.manual_seed(seed)
    device = pixels.device

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(labels), (batch,), generator=generator, device=device)
        targets = F.one_hot(labels[chosen], 10).float() * 0.9 + 0.01
        images = augment(normalised(pixels[chosen]), generator, zoom=0.7)
        if torch.rand((), generator=generator, device=device) < 0.5:
            return images, targets
        return mixed(images, targets, generator)

    return fit(vit(10, 32).to(device), draw, steps, lr, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="zip of CIFAR-10, else as experiments/data.py says")
    parser.add_argument("--output", type=Path, default=HERE / "runs" / "vit_cifar10.safetensors")
    parser.add_argument("--epochs", type=float, default=200)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few steps on every fiftieth image")
    arguments = parser.parse_args()
    data = dataset("cifar10", arguments.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pixels, labels = (x.to(device) for x in load(data, "train", 50 if arguments.smoke else 1))
    steps = 10 if arguments.smoke else round(arguments.epochs * len(labels) / arguments.batch)
    started = time.monotonic()
    model = pretrain(pixels, labels, steps, 32 if arguments.smoke else arguments.batch, arguments.lr, arguments.seed)
    seconds = time.monotonic() - started
    tested, truth = (x.to(device) for x in load(data, "test", 100 if arguments.smoke else 1))
    accuracy = (logits(model, normalised(tested)).argmax(1) == truth).float().mean().item()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: x.cpu().contiguous() for name, x in model.state_dict().items()}, arguments.output)
    report = {
        "device": device,
        "steps": steps,
        "seconds": round(seconds),
        "test_images": len(truth),
        "accuracy": round(accuracy, 4),
    }
    append(HERE / "results" / "runs.jsonl", report)
    print(json.dumps(report), f"-> {arguments.output}")


if __name__ == "__main__":
    main()
