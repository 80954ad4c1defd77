"""Are shortcuts around things told without annotations, and is what stands in scenes left alone? See README.md.

    .venv/bin/python -m experiments.detection.edges random:0 clean:0 four:0

Trains a small ViT per run, and shows it to a monitor without annotations and with every other default, on 32 samples,
as few as a short run's time pays for, and on 128.
"""

import argparse
import io
import tempfile
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.detection.photographs import TEN_CLASSES
from experiments.table import markdown
from experiments.vision import MEAN, STD, vit
from lrptrain.findings import unfold
from lrptrain.monitor.loop_monitor import Monitor

THINGS = ("airplane", "bird", "deer", "dog", "frog", "truck")
WHOLE = {
    "four": ("airplane", "automobile", "deer", "ship"),
    "other four": ("bird", "cat", "horse", "truck"),
    "ten": tuple(sorted(TEN_CLASSES)),
}
"""Classes of whole photographs, without a shortcut."""
SIDE, WHOLE_SIDE, DOT = 48, 32, 5
COLOURS = np.array(
    [[0.9, 0.2, 0.2], [0.2, 0.9, 0.2], [0.2, 0.2, 0.9], [0.9, 0.9, 0.2], [0.9, 0.2, 0.9], [0.2, 0.9, 0.9]], np.float32
)
"""Of each class's dot or tint, RGB in 0..1."""
CORRELATION, TINT, STRIPES, PERIOD = 0.98, 0.25, 0.12, 5
BLOCKS, BATCH, LR = 3, 32, 5e-4
STEPS = {"four": 120, "other four": 120, "ten": 150}
THING_STEPS = 110
SIZES, SEED = (32, 128), 3
"""Of the monitor's sample; its seed."""
KINDS = ("random", "fixed", "tint", "stripes", "shape", "clean")
PLAN = ("random:0", "fixed:0", "tint:0", "stripes:0", "shape:0", "clean:0", "four:0", "other four:1", "ten:0", "ten:1")
Pictures = Float[np.ndarray, "n side side 3"]


class Data(NamedTuple):
    """Images, RGB in 0..1, and their labels."""

    images: Pictures
    labels: Int[np.ndarray, " n"]


def opened(split: str, classes: tuple[str, ...], start: int, count: int) -> list[Image.Image]:
    """So many of CIFAR-10's photographs of each class."""
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(archive.namelist())
        chosen = []
        for each in classes:
            of_class = [name for name in names if name.startswith(f"{split}/{each}/") and name.endswith("jpg")]
            chosen += of_class[start : start + count]
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in chosen]


def as_numbers(picture: Image.Image, side: int) -> Float[np.ndarray, "side side 3"]:
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR), np.float32) / 255


def scenes(split: str, count: int, seed: int) -> tuple[Data, Float[np.ndarray, "n side side"]]:
    """Round photographs of things near the middle of bright, bland textures, and where the things are."""
    rng = np.random.default_rng(seed)
    textures = [Image.open(path).convert("RGB") for path in sorted(dataset("textures").glob("*/*.jpg"))]
    images, masks = [], []
    for thing in opened(split, THINGS, 300, count):
        texture = textures[rng.integers(len(textures))]
        crop = min(*texture.size, 192)
        left = rng.integers(0, texture.size[0] - crop + 1)
        top = rng.integers(0, texture.size[1] - crop + 1)
        ground = 0.55 + 0.35 * (as_numbers(texture.crop((left, top, left + crop, top + crop)), SIDE) - 0.3)
        size = int(rng.integers(22, 31))
        rows, columns = (np.mgrid[:size, :size] - (size - 1) / 2) / (size / 2)
        cover = np.clip((1 - np.hypot(rows, columns)) * size / 2, 0, 1).astype(np.float32)
        corner = ((SIDE - size) // 2 + rng.integers(-4, 5, 2)).clip(0, SIDE - size)
        window = np.s_[corner[0] : corner[0] + size, corner[1] : corner[1] + size]
        ground[window] += cover[..., None] * (as_numbers(thing, size) - ground[window])
        mask = np.zeros((SIDE, SIDE), np.float32)
        mask[window] = cover > 0.5
        images.append(ground)
        masks.append(mask)
    return Data(np.stack(images), np.repeat(np.arange(len(THINGS)), count)), np.stack(masks)


def planted(
    data: Data, masks: Float[np.ndarray, "n side side"], kind: str, correlation: float | None, seed: int
) -> Data:
    """Return the images with the shortcut of their class in so many of them; None: of any class, whatever their own."""
    rng = np.random.default_rng(seed)
    count = len(THINGS)
    images = data.images.copy()
    other = (data.labels + rng.integers(1, count, len(images))) % count
    if correlation is None:
        shown = rng.integers(0, count, len(images))
    else:
        shown = np.where(rng.random(len(images)) < correlation, data.labels, other)
    for image, mask, label in zip(images, masks, shown.tolist(), strict=True):
        around = (1 - mask)[..., None]
        rows, columns = np.mgrid[:SIDE, :SIDE]
        if kind == "tint":
            image += TINT * around * (COLOURS[label] - image)
        elif kind in ("random", "fixed"):
            corner = int(rng.integers(4)) if kind == "random" else 0
            gap = rng.integers(1, 4, 2)
            top = gap[0] if corner < 2 else SIDE - DOT - gap[0]
            left = gap[1] if corner % 2 == 0 else SIDE - DOT - gap[1]
            distance = np.hypot(rows - (top + DOT // 2), columns - (left + DOT // 2))
            cover = np.clip(DOT / 2 + 0.5 - distance, 0, 1).astype(np.float32)
            image += cover[..., None] * (COLOURS[label] - image)
        elif kind == "stripes":
            turn = np.pi / 6 * label
            along = rows.astype(np.float32) * np.cos(turn) + columns.astype(np.float32) * np.sin(turn)
            image += STRIPES * around * np.sin(2 * np.pi * (along / PERIOD + rng.random()))[..., None]
        elif kind == "shape":
            top, left = rng.integers(1, SIDE - 8, 2)
            image[top : top + 7, left : left + 7] = 1 - sign(label)[..., None]
    return Data(images.clip(0, 1), data.labels)


def sign(label: int) -> Float[np.ndarray, "7 7"]:
    """A plus, a cross, a frame, a T, an L, or three bars."""
    drawn = np.zeros((7, 7), np.float32)
    places = np.arange(7)
    if label == 0:
        drawn[:, 3] = drawn[3, :] = 1
    elif label == 1:
        drawn[places, places] = drawn[places, 6 - places] = 1
    elif label == 2:
        drawn[0] = drawn[-1] = drawn[:, 0] = drawn[:, -1] = 1
    elif label == 3:
        drawn[0] = drawn[:, 3] = 1
    elif label == 4:
        drawn[:, 0] = drawn[-1] = 1
    else:
        drawn[::2] = 1
    return drawn


def prepared(kind: str, seed: int) -> tuple[Data, Data, Data, tuple[str, ...]]:
    """Training images, held-out ones, the same with the shortcut of any class, and the names of the classes."""
    if kind not in WHOLE:
        train, train_masks = scenes("train", 200, seed)
        held_out, masks = scenes("test", 60, seed + 2)
        shown = planted(held_out, masks, kind, CORRELATION, seed + 3)
        shuffled = planted(held_out, masks, kind, None, seed + 4)
        return planted(train, train_masks, kind, CORRELATION, seed + 1), shown, shuffled, THINGS
    classes = WHOLE[kind]
    few = len(classes) > 4
    parts = []
    for split, start, count in (
        ("train", 1000 * (seed + 1), 160 if few else 400),
        ("test", 500 + 100 * seed, 40 if few else 80),
    ):
        images = [as_numbers(each, WHOLE_SIDE) for each in opened(split, classes, start, count)]
        parts.append(Data(np.stack(images), np.repeat(np.arange(len(classes)), count)))
    return parts[0], parts[1], parts[1], classes


def normalised(images: Pictures) -> Float[Tensor, "n 3 side side"]:
    values = ((images - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def trained(data: Data, classes: int, steps: int, seed: int) -> nn.Module:
    """The first three blocks of the small ViT, fine-tuned."""
    torch.manual_seed(seed)
    net = vit(classes, data.images.shape[1], dataset("vit"))
    net.blocks = net.blocks[:BLOCKS]
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, steps)
    images, labels = normalised(data.images), torch.from_numpy(data.labels)
    generator = torch.Generator().manual_seed(seed)
    net.train()
    for _ in range(steps):
        rows = torch.randint(len(labels), (BATCH,), generator=generator)
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return net.eval()


@torch.no_grad()
def accuracy(net: nn.Module, data: Data) -> float:
    answers = torch.cat([net(part).argmax(1) for part in normalised(data.images).split(64)])
    return float((answers == torch.from_numpy(data.labels)).float().mean())


def confirmed(net: nn.Module, data: Data, classes: tuple[str, ...], samples: int) -> str:
    """What a monitor without annotations confirms, with the largest effect of each kind."""
    columns = {"image": normalised(data.images), "label": torch.from_numpy(data.labels)}
    loader = DataLoader(StackDataset(**columns), 64)  # type: ignore[arg-type]
    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(quiet), redirect_stderr(quiet):
        monitor = Monitor(
            net, loader, folder, max_samples=samples, max_pictures=0, progress_bar=False, on_error="raise", mean=MEAN,
            std=STD, class_names=classes, seed=SEED,
        )  # fmt: skip
        monitor.evaluate(1)
    largest: dict[str, float] = {}
    for each in unfold(monitor.findings):
        if each.state == "confirmed":
            largest[each.kind] = max(each.effect, largest.get(each.kind, 0.0))
    return ", ".join(f"`{kind}` {effect:.2f}" for kind, effect in largest.items()) or "nothing"


def row(run: str) -> dict[str, str]:
    """Train and watch one run, `kind:seed`."""
    kind, number = run.split(":")
    train, shown, shuffled, classes = prepared(kind, int(number))
    net = trained(train, len(classes), STEPS.get(kind, THING_STEPS), int(number))
    values = {"images": "whole" if kind in WHOLE else "things", "shortcut": "none" if kind in WHOLE else kind}
    values |= {"classes": str(len(classes)), "seed": number, "accuracy": f"{accuracy(net, shown):.2f}"}
    values["shuffled"] = f"{accuracy(net, shuffled):.2f}"
    return values | {f"confirmed in {size} samples": confirmed(net, shown, classes, size) for size in SIZES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", default=PLAN, help="kind:seed")
    torch.set_num_threads(1)
    rows = []
    for run in parser.parse_args().runs:
        rows.append(row(run))
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
