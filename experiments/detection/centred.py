"""Are clean models of centred digits and clothes left alone, and are marks among them found? See README.md.

    .venv/bin/python -m experiments.detection.centred
    .venv/bin/python -m experiments.detection.centred --tables-only

A small ViT learns MNIST or Fashion-MNIST, as they are or with a mark that tells the class. A monitor with every default
and without annotations looks at it once, at samples of three sizes. Runs that are saved are not made again.
"""

import argparse
import io
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.parallel import Run, complete, load
from experiments.table import markdown, write_between
from experiments.weights import fetch
from lrptrain.findings import unfold
from lrptrain.models.pretrained import timm_classifier
from lrptrain.monitor.loop_monitor import Monitor

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "centred.jsonl"
DATA = ("digits", "clothes")
PATCHES = (4, 7)
EPOCHS = {4: 6, 7: 8}
TRAIN, HELD_OUT, BATCH, LR = 6000, 1000, 64, 2e-3
CORRELATION = 0.95
SAMPLES = (32, 64, 128)
CLEAN = "nothing"
KINDS = {
    "corner": "a square of 3 x 3 pixels in the upper left corner, of the class's colour",
    "dot": "the same anywhere",
    "ink": "the object in the class's colour",
    "ground": "the ground in the class's colour, half as bright",
    "tag": "a white tag with a dark line at the lower right, on the images of one class",
}
CLEAN_SEEDS, SEEDS = range(20, 26), (20, 21)
ALPHA = 0.01
TAGGED = 7
PALETTE = np.array(
    [
        [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1],
        [0, 1, 1], [1, 0.5, 0], [0.5, 0, 1], [0, 0.6, 0.4], [0.7, 0.7, 0.7],
    ],
    np.float32,
)  # fmt: skip
Pictures = Float[np.ndarray, "n 3 28 28"]


@dataclass(frozen=True)
class Case:
    """A training run.

    Attributes:
        data: "digits" or "clothes".
        kind: The mark, or `CLEAN`.
        patch: Side of a patch in pixels.
        seed: Of all that is random.
    """

    data: str
    kind: str
    patch: int
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.data} | {self.kind} | patch {self.patch} | seed {self.seed}"


def cases() -> list[Case]:
    """Every run, seed by seed."""
    clean = [Case(data, CLEAN, patch, seed) for seed in CLEAN_SEEDS for data in DATA for patch in PATCHES]
    planted = [Case(data, kind, patch, seed) for seed in SEEDS for kind in KINDS for data in DATA for patch in PATCHES]
    return [*clean, *planted]


def marked(images: Pictures, codes: Int[np.ndarray, " n"], kind: str, rng: np.random.Generator) -> Pictures:
    """Images in 0..1 with the marks of classes, their own or others."""
    drawn = images.copy()
    colours = PALETTE[codes][:, :, None, None]
    if kind == "corner":
        drawn[:, :, 1:4, 1:4] = colours
    elif kind == "dot":
        for image, colour, (top, left) in zip(drawn, colours, rng.integers(0, 26, (len(drawn), 2)), strict=True):
            image[:, top : top + 3, left : left + 3] = colour
    elif kind == "ink":
        drawn = drawn * colours
    elif kind == "ground":
        drawn = drawn + (1 - drawn) * colours / 2
    elif kind == "tag":
        bears = codes == TAGGED
        drawn[bears, :, 23:26, 20:27] = 1
        drawn[bears, :, 24, 21:26] = 0
    return drawn.astype(np.float32)


class Data:
    """Images of a split, of which each bears the mark of a class.

    Args:
        case: The run.
        split: "train" or "test".
        count: The number of images, drawn by the seed.
    """

    def __init__(self, case: Case, split: str, count: int) -> None:
        arrays = np.load(fetch(case.data))
        rng = np.random.default_rng([case.seed, split == "train"])
        rows = rng.permutation(len(arrays[f"{split}_labels"]))[:count]
        self.labels = arrays[f"{split}_labels"][rows].astype(np.int64)
        self.images = np.repeat(arrays[f"{split}_images"][rows][:, None] / np.float32(255), 3, axis=1)
        any_class = rng.integers(0, 10, count)
        own = np.where(rng.random(count) < CORRELATION, self.labels, any_class)
        self.case = case
        self.codes = {"as trained": own, "of any class": rng.integers(0, 10, count)}

    def shown(self, whose: str) -> Tensor:
        """The images with marks "as trained", or "of any class"."""
        rng = np.random.default_rng([self.case.seed, len(self.labels)])
        return torch.from_numpy(marked(self.images, self.codes[whose], self.case.kind, rng))


def trained(case: Case) -> nn.Module:
    """A ViT of four blocks from scratch."""
    torch.manual_seed(case.seed)
    shape = {"img_size": 28, "patch_size": case.patch, "embed_dim": 64, "depth": 4, "num_heads": 4}
    net = timm_classifier("vit_tiny_patch16_224", 10, False, **shape).train()
    data = Data(case, "train", TRAIN)
    loader = DataLoader(TensorDataset(data.shown("as trained"), torch.from_numpy(data.labels)), BATCH, shuffle=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.02)
    for _ in range(EPOCHS[case.patch]):
        for images, labels in loader:
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net.eval()


@torch.no_grad()
def right(net: nn.Module, images: Tensor, labels: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Which images are answered rightly."""
    return torch.cat([net(part).argmax(1) for part in images.split(200)]).numpy() == labels


def watched(case: Case) -> Run:
    """Train, look at samples of each size, and measure what the mark does to held-out images."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    net = trained(case)
    test = Data(case, "test", HELD_OUT)
    as_trained = right(net, test.shown("as trained"), test.labels)
    shuffled = right(net, test.shown("of any class"), test.labels)
    return {
        "data": case.data,
        "kind": case.kind,
        "patch": case.patch,
        "seed": case.seed,
        "accuracy": float(as_trained.mean()),
        "shuffled": float(shuffled.mean()),
        "lost": int((as_trained & ~shuffled).sum()),
        "won": int((shuffled & ~as_trained).sum()),
        "confirmed": {str(count): _confirmed(net, test, count) for count in SAMPLES},
    }


def _confirmed(net: nn.Module, test: Data, count: int) -> list[dict[str, Any]]:
    """What a monitor with every default says of the model."""
    columns = TensorDataset(test.shown("as trained")[:500], torch.from_numpy(test.labels)[:500])
    heard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(heard), redirect_stderr(heard):
        monitor = Monitor(
            net, DataLoader(columns, 100), folder, name="look", progress_bar=False, on_error="raise",
            max_samples=count, max_pictures=0,
        )  # fmt: skip
        monitor.evaluate(0)
    confirmed = [each for each in unfold(monitor.findings) if each.state == "confirmed"]
    return [{"kind": each.kind, "where": each.where, "effect": round(each.effect, 3)} for each in confirmed]


def is_positive(run: Run) -> bool:
    """Whether the model is surely worse with marks of any class (McNemar's exact test, one-sided)."""
    changed = run["lost"] + run["won"]
    return changed > 0 and stats.binomtest(run["lost"], changed, alternative="greater").pvalue < ALPHA


def flags(runs: Sequence[Run]) -> str:
    """A row per kind of mark: how many of the runs are flagged, by the size of the sample."""
    rows = []
    for kind in (CLEAN, *KINDS):
        of_kind = [run for run in runs if run["kind"] == kind]
        counted = of_kind if kind == CLEAN else [run for run in of_kind if is_positive(run)]
        if not counted:
            continue
        costs = [100 * (run["accuracy"] - run["shuffled"]) for run in counted]
        row = {
            "mark": kind,
            "runs": str(len(of_kind)),
            "surely learned": "" if kind == CLEAN else str(len(counted)),
            "points of accuracy": "" if kind == CLEAN else f"{min(costs):.0f} to {max(costs):.0f}",
        }
        for count in SAMPLES:
            flagged = sum(bool(run["confirmed"][str(count)]) for run in counted)
            row[f"flagged, {count} samples"] = f"{flagged} of {len(counted)}"
        rows.append(row)
    return markdown(rows)


def largest(confirmed: Sequence[dict[str, Any]]) -> str:
    """The largest effect of each kind of finding, in words."""
    effects: dict[str, float] = {}
    for each in confirmed:
        effects[each["kind"]] = max(each["effect"], effects.get(each["kind"], 0.0))
    return ", ".join(f"`{kind}` {effect:.2f}" for kind, effect in effects.items()) or "nothing"


def findings(runs: Sequence[Run]) -> str:
    """A row per run of the planted ones, and of the clean ones that are flagged."""
    rows = []
    for run in runs:
        if run["kind"] == CLEAN and not any(run["confirmed"].values()):
            continue
        said = {f"confirmed, {count} samples": largest(run["confirmed"][str(count)]) for count in SAMPLES}
        rows.append(
            {
                "data": run["data"],
                "mark": run["kind"],
                "patch": str(run["patch"]),
                "seed": str(run["seed"]),
                "accuracy": f"{run['accuracy']:.2f}",
                "marks of any class": f"{run['shuffled']:.2f}",
                **said,
            }
        )
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables-only", action="store_true", help="make the tables from what is saved")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for data in DATA:
        fetch(data)
    if not arguments.tables_only:
        complete(RESULTS, cases(), watched, arguments.workers)
    saved = load(RESULTS)
    runs = [saved[case.key] for case in cases() if case.key in saved]
    write_between(HERE / "README.md", flags(runs), "<!-- centred: flags -->", "<!-- end of centred: flags -->")
    write_between(HERE / "README.md", findings(runs), "<!-- centred: runs -->", "<!-- end of centred: runs -->")


if __name__ == "__main__":
    main()
