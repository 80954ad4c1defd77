"""What do seeds of many images cost, and does memory grow with their number? See README.md.

    .venv/bin/python -m experiments.speed.seeds --images 1000

Seeds of ViT-S at 224 pixels with all scales and mirror images, in the batches in which an export makes them, over one
forward and backward pass over the same images. Each number of images is a process of its own.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch
from torch import nn

from experiments.speed.cells import apart, time_and_memory, training_pass
from experiments.speed.run import vit_small
from experiments.table import markdown, write_between
from lrptrain.segmentation.seeds import seed_maps

HERE = Path(__file__).resolve().parent

METHODS = ("transformer_attribution", "attnlrp", "generic_attention")
START, END = "<!-- seeds -->", "<!-- end of seeds -->"


def images_of(start: int, count: int) -> torch.Tensor:
    """Some of the images: noise, made when it is needed."""
    generator = torch.Generator().manual_seed(start)
    return torch.randn(count, 3, 224, 224, generator=generator)


def over_all(model: nn.Module, work, arguments: argparse.Namespace, images: int) -> None:
    """Do the work on all images, batch by batch."""
    for start in range(0, images, arguments.batch):
        work(model, images_of(start, min(arguments.batch, images - start)).to(arguments.device))


def seeds(method: str, chunk: int, model: nn.Module, images: torch.Tensor) -> None:
    """Seeds of one class per image."""
    present = torch.zeros(len(images), 2, dtype=torch.bool, device=images.device)
    present[:, 0] = True
    seed_maps(model, images, present, method, chunk=chunk)


def measure(arguments: argparse.Namespace, method: str, images: int) -> dict[str, float]:
    """Time over that of a training pass on the same images, and bytes at the peak."""
    model = vit_small()[0].to(arguments.device)
    mine = partial(over_all, model, partial(seeds, method, arguments.batch), arguments, images)
    base = partial(over_all, model, training_pass, arguments, images)
    return time_and_memory(mine, base, 1, arguments.device)


def table(cells: dict[str, dict]) -> str:
    """A row per method and number of images."""
    rows = []
    for key, found in cells.items():
        method, images = key.split(" | ")
        failed = "error" in found
        rows.append(
            {
                "seeds by": f"`{method}`",
                "images": images,
                "time": "-" if failed else f"{found['time']:.1f}",
                "peak memory, MB": found["error"] if failed else f"{found['bytes'] / 1e6:.0f}",
            }
        )
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # until the processes of the cells
    path = HERE / "results" / f"seeds_{arguments.device}.json"
    cells = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for method in arguments.methods:
        for images in sorted({max(arguments.images // 10, 1), arguments.images}):  # a tenth tells how memory grows
            key = f"{method} | {images}"
            if key not in cells or "error" in cells[key]:
                cells[key] = apart(partial(measure, arguments, method, images), arguments.device, arguments.threads)
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(cells, indent=0) + "\n", encoding="utf-8")
                print(key, cells[key], flush=True)
    text = table(cells)
    if arguments.write:
        write_between(HERE / "README.md", text, START, END)
    print(text)


if __name__ == "__main__":
    main()
