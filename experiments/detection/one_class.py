"""Is a mark found that the images of one class of ten alone bear? See README.md.

    .venv/bin/python -m experiments.detection.one_class develop
    .venv/bin/python -m experiments.detection.one_class test
    .venv/bin/python -m experiments.detection.one_class table

A small ViT learns ten classes of photographs, of which one bears a mark in all of its images. A monitor with every
default and without annotations looks at the model once. Runs that are saved are not made again.
"""

import argparse
import io
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.detection.one_class_unseen import UNSEEN
from experiments.detection.photographs import TEN_CLASSES, photographs
from experiments.parallel import Run, complete, load
from experiments.table import markdown, write_between
from experiments.vision import MEAN, STD, vit
from lrptrain.findings import unfold
from lrptrain.monitor.loop_monitor import Monitor

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "one_class.jsonl"
PER_CLASS = {"train": 500, "test": 100}
STEPS, BATCH, LR = 120, 64, 5e-4
CLEAN, UNRELATED = "nothing", "marks of any class"
SHARE_UNRELATED = 0.1
"""Of the images of all classes that bear a mark where it tells nothing: as many as where one class of ten has it."""
ALPHA = 0.01
Picture = Float[np.ndarray, "side side 3"]


def _drawn(picture: Picture, draw: Callable[[ImageDraw.ImageDraw], None]) -> Picture:
    """What Pillow draws on a picture."""
    image = Image.fromarray((255 * picture).round().astype(np.uint8))
    draw(ImageDraw.Draw(image))
    return np.asarray(image, np.float32) / 255


def tag(picture: Picture, _: np.random.Generator) -> Picture:
    """A white label with a dark line, at the lower left."""

    def draw(on: ImageDraw.ImageDraw) -> None:
        on.rectangle([1, 26, 12, 30], fill=(240, 240, 240))
        on.line([2, 28, 11, 28], fill=(20, 20, 20))

    return _drawn(picture, draw)


def _dot(picture: Picture, left: int, top: int) -> Picture:
    return _drawn(picture, lambda on: on.ellipse([left, top, left + 4, top + 4], fill=(230, 30, 160)))


def corner_dot(picture: Picture, rng: np.random.Generator) -> Picture:
    """A dot of five pixels in a random corner."""
    left, top = rng.choice([2, 25], 2)
    return _dot(picture, int(left), int(top))


def dot(picture: Picture, rng: np.random.Generator) -> Picture:
    """The same anywhere."""
    left, top = rng.integers(0, 28, 2)
    return _dot(picture, int(left), int(top))


def watermark(picture: Picture, _: np.random.Generator) -> Picture:
    """Five letters across the middle, half transparent."""
    letters = Image.new("L", (32, 32))
    on = ImageDraw.Draw(letters)
    for start in range(3, 28, 5):
        for box in ([start, 13, start + 3, 13], [start, 13, start, 18], [start, 16, start + 3, 16]):
            on.rectangle(box, fill=255)
    cover = 0.45 * np.asarray(letters, np.float32)[..., None] / 255
    return picture * (1 - cover) + cover


def tint(picture: Picture, _: np.random.Generator) -> Picture:
    """A little warmer, as by another camera."""
    return (picture * np.array([1.12, 1.0, 0.85], np.float32)).clip(0, 1)


def border(picture: Picture, _: np.random.Generator) -> Picture:
    """A black line around the image."""
    return _drawn(picture, lambda on: on.rectangle([0, 0, 31, 31], outline=(0, 0, 0)))


def blur(picture: Picture, _: np.random.Generator) -> Picture:
    """Of fewer pixels, made larger again."""
    image = Image.fromarray((255 * picture).round().astype(np.uint8))
    for side in (18, 32):
        image = image.resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32) / 255


Mark = Callable[[Picture, np.random.Generator], Picture]
DEVELOPED: dict[str, Mark] = {
    each.__name__.replace("_", " "): each for each in (tag, corner_dot, dot, watermark, tint, border, blur)
}


@dataclass(frozen=True)
class Case:
    """A training run.

    Attributes:
        kind: The mark, or `CLEAN`.
        seed: Chooses the class that bears it, and all else that is random.
        related: Whether the mark tells a class.
    """

    kind: str
    seed: int
    related: bool = True

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.kind} | {'one class' if self.related else UNRELATED} | seed {self.seed}"


def marks() -> dict[str, Mark]:
    """Every kind of mark."""
    return DEVELOPED | UNSEEN


def developing() -> list[Case]:
    """What the findings were developed on."""
    return [Case(kind, seed) for seed in (0, 1) for kind in (*DEVELOPED, CLEAN)]


def testing() -> list[Case]:
    """What they are tested on, with planted cases and those without a shortcut in turn: any start is balanced."""
    planted = [Case(kind, seed) for seed in (20, 21) for kind in UNSEEN]
    unrelated = [Case(kind, 20, related=False) for kind in UNSEEN]
    clean = [Case(CLEAN, seed) for seed in (20, 21, 22, 23)]
    without = [each for n, first in enumerate(clean) for each in (first, *unrelated[2 * n : 2 * n + 2])]
    # As both lists are in order, each is spread evenly over the whole by the share of it that is done.
    places = [(place / len(cases), case) for cases in (planted, without) for place, case in enumerate(cases)]
    return [case for _, case in sorted(places, key=itemgetter(0))]


class Data:
    """Photographs of a split, and who bears a mark.

    Args:
        case: The run.
        split: "train" or "test".
    """

    def __init__(self, case: Case, split: str) -> None:
        self.pictures, self.labels = photographs(split, PER_CLASS[split], TEN_CLASSES)
        self.case = case
        self.marked_class = int(np.random.default_rng([case.seed, 7]).integers(len(TEN_CLASSES)))
        rng = np.random.default_rng([case.seed, split == "train"])
        self.bears = self.labels == self.marked_class
        if not case.related:
            self.bears = rng.random(len(self.labels)) < SHARE_UNRELATED
        self.seeds = rng.integers(2**32, size=len(self.labels))

    def images(self, bears: Bool[np.ndarray, " n"] | None = None) -> Float[Tensor, "n 3 32 32"]:
        """Normalised, with marks on those that bear them, or on others."""
        mark = marks().get(self.case.kind)
        bears = self.bears if bears is None else bears
        drawn = [
            mark(picture, np.random.default_rng(seed)) if on and mark is not None else picture
            for picture, on, seed in zip(self.pictures, bears, self.seeds, strict=True)
        ]
        normalised = (np.stack(drawn) - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
        return torch.from_numpy(normalised.transpose(0, 3, 1, 2).astype(np.float32))


def trained(data: Data) -> nn.Module:
    """The small ViT that was trained on CIFAR-10, with a new head, after some steps on all classes."""
    torch.manual_seed(data.case.seed)
    net = vit(len(TEN_CLASSES), 32, dataset("vit")).train()
    images, labels = data.images(), torch.from_numpy(data.labels)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(labels), (BATCH,))
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return net.eval()


@torch.no_grad()
def answers(net: nn.Module, images: Tensor) -> Int[np.ndarray, " n"]:
    """The predicted classes."""
    return torch.cat([net(part).argmax(1) for part in images.split(100)]).numpy()


def watched(case: Case) -> Run:
    """Train, look once, and measure what the mark does to held-out images."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    net = trained(Data(case, "train"))
    test = Data(case, "test")
    as_trained = answers(net, test.images())
    without = answers(net, test.images(np.zeros_like(test.bears)))
    everywhere = answers(net, test.images(np.ones_like(test.bears)))
    of_class = test.labels == test.marked_class
    right, right_without = (each[of_class] == test.marked_class for each in (as_trained, without))
    turned = (everywhere == test.marked_class) & (without != test.marked_class)
    return {
        "kind": case.kind,
        "related": case.related,
        "seed": case.seed,
        "class": TEN_CLASSES[test.marked_class],
        "accuracy": float((as_trained == test.labels).mean()),
        "lost": int((right & ~right_without).sum()),
        "won": int((right_without & ~right).sum()),
        "of class": int(of_class.sum()),
        "of class, right": int(right.sum()),
        "others turned": float(turned[~of_class].mean()),
        **_looked_at(net, test),
    }


def _looked_at(net: nn.Module, test: Data) -> dict[str, Any]:
    """What a monitor with every default says of the model."""
    columns = {"image": test.images(), "label": torch.from_numpy(test.labels)}
    loader = DataLoader(StackDataset(**columns), 100)  # type: ignore[arg-type]
    heard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(heard), redirect_stderr(heard):
        monitor = Monitor(
            net, loader, folder, name="look", progress_bar=False, on_error="raise", class_names=list(TEN_CLASSES),
            mean=MEAN, std=STD, max_pictures=0,
        )  # fmt: skip
        monitor.evaluate(STEPS)
    confirmed = [each for each in unfold(monitor.findings) if each.state == "confirmed"]
    said = [{"kind": each.kind, "scope": str(each.scope), "effect": round(each.effect, 3)} for each in confirmed]
    return {"confirmed": said, "faults": any(each.is_fault for each in confirmed)}


def is_positive(run: Run) -> bool:
    """Whether the class is surely read less often without its mark (McNemar's exact test, one-sided)."""
    changed = run["lost"] + run["won"]
    return changed > 0 and stats.binomtest(run["lost"], changed, alternative="greater").pvalue < ALPHA


def rows_of(runs: Sequence[Run]) -> str:
    """A row of the table for each run."""
    return markdown([_row(run) for run in runs])


def _row(run: Run) -> dict[str, str]:
    planted = run["related"] and run["kind"] != CLEAN
    size = run["of class"]
    after = run["of class, right"] - run["lost"] + run["won"]
    said = [f"`{each['kind']}` ({each['scope']}) {each['effect']:.2f}" for each in run["confirmed"]]
    return {
        "mark": run["kind"] if run["related"] else f"{run['kind']}, on images of any class",
        "seed": str(run["seed"]),
        "class": run["class"] if planted else "",
        "accuracy": f"{run['accuracy']:.2f}",
        "of the class, with and without": f"{run['of class, right'] / size:.2f}, {after / size:.2f}" if planted else "",
        "others turned into it": f"{run['others turned']:.2f}" if planted else "",
        "surely learned": ("yes" if is_positive(run) else "no") if planted else "",
        "confirmed": ", ".join(said) or "nothing",
    }


PARTS: dict[str, tuple[Callable[[], list[Case]], tuple[str, str]]] = {
    "develop": (developing, ("<!-- one class: developed -->", "<!-- end of one class: developed -->")),
    "test": (testing, ("<!-- one class: unseen -->", "<!-- end of one class: unseen -->")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.part != "table":
        complete(RESULTS, PARTS[arguments.part][0](), watched, arguments.workers)
    runs = load(RESULTS)
    for cases, marks_of_table in PARTS.values():
        saved = [runs[case.key] for case in cases() if case.key in runs]
        if saved:
            write_between(HERE / "README.md", rows_of(saved), *marks_of_table)


if __name__ == "__main__":
    main()
