"""Do backgrounds of pets tell the breed, and is a model called faulty that was kept from reading them? See README.md.

.venv/bin/python -m experiments.benchmark.backgrounds [--workers 2]
.venv/bin/python -m experiments.benchmark.backgrounds --tables    # from what is saved
"""

import argparse
import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.benchmark import breeds
from experiments.benchmark.asked import ANNOTATED, Row, inspected, rounded
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.training import plain_step, right, trained
from experiments.mending.arms import guided
from experiments.parallel import complete, load
from experiments.real_models.samples import Pets
from experiments.records import named
from experiments.table import markdown, mean_interval, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "backgrounds.jsonl"
ARMS = ("plain", "swap")
SEEDS = range(6)
SHOWN = ("whole", "background alone", "pet alone")
PERMUTATIONS = 1000
NUMBER = 950


@dataclass(frozen=True)
class Run:
    """A training on photographs without marks.

    Attributes:
        arm: One of `ARMS`.
        seed: Of everything random.
    """

    arm: str
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.arm} | seed {self.seed}"


def judged(run: Run) -> Row:
    """Train a network, and see what it knows of whole photographs, of backgrounds alone, and of pets alone."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    case = Case("pets", NO_MARK, 1.0, NUMBER + run.seed)
    held_out = breeds.samples(case, "test", breeds.HELD_OUT, 1)(True)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        step = plain_step if run.arm == "plain" else guided(case, "swap")
        net, _ = trained(case, breeds.samples(case, "train", breeds.TRAIN, 0)(True), step)
        said = named(inspected(net, held_out, case, breeds.look(case), ANNOTATED).findings)
    row: Row = {"arm": run.arm, "seed": run.seed, "named": said, "whole": right(net, held_out).mean()}
    # 0 is the mean colour; the edge that nobody annotated is hidden with either.
    for name, shown in (("background alone", held_out["mask"] == 0), ("pet alone", held_out["mask"] == 1)):
        row[name] = right(net, {**held_out, "image": held_out["image"] * shown[:, None]}).mean()
    found: Row = rounded(row)
    return found


def colours(photographs: Pets) -> Float[np.ndarray, "n features"]:
    """Means, spreads and quantiles of the background's colours: neither place nor shape is in them."""
    found = []
    for image, mask in zip(photographs.image, photographs.mask, strict=True):
        pixels = image[:, mask == 0]
        quantiles = torch.quantile(pixels, torch.tensor([0.1, 0.5, 0.9]), dim=1).flatten()
        found.append(torch.cat([pixels.mean(1), pixels.std(1), quantiles]))
    return torch.stack(found).numpy()


def told_by_colours() -> tuple[float, float]:
    """Share of the test photographs whose breed a logistic regression tells by `colours`, and the p-value of that."""
    (train, labels), (test, truth) = ((colours(x), x.label.numpy()) for x in map(breeds.stock, ("train", "test")))
    regression = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    share = regression.fit(train, labels).score(test, truth)
    rng = np.random.default_rng(0)
    chance = [regression.fit(train, rng.permutation(labels)).score(test, truth) for _ in range(PERMUTATIONS)]
    return share, (1 + sum(x >= share for x in chance)) / (1 + PERMUTATIONS)


def table() -> str:
    """A row a training, and by how much `swap` is above plain training."""
    runs = load(RESULTS)
    rows = []
    for run in sorted(runs.values(), key=lambda run: (run["arm"], run["seed"])):
        row = {"training": f"{run['arm']}, seed {run['seed']}"} | {name: f"{run[name]:.2f}" for name in SHOWN}
        row["faults"] = "; ".join(f"{each['cue']} {each['effect']:.2f}" for each in run["named"] if each["is_fault"])
        rows.append(row)
    difference = {"training": "swap minus plain, points"}
    for name in SHOWN:
        paired = [100 * (runs[Run("swap", seed).key][name] - runs[Run("plain", seed).key][name]) for seed in SEEDS]
        difference[name] = "{:+.0f} ± {:.0f}".format(*mean_interval(paired))
    return markdown([*rows, difference | {"faults": ""}])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time, each on one core")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        print("told by the background's colours: {:.2f}, p = {:.3f}".format(*told_by_colours()))
        complete(RESULTS, [Run(arm, seed) for seed in SEEDS for arm in ARMS], judged, arguments.workers)
    write_between(HERE / "README.md", table(), "<!-- backgrounds -->", "<!-- end of backgrounds -->")


if __name__ == "__main__":
    main()
