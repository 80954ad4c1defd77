"""Do backgrounds of pets tell the breed, and is a model called faulty that was kept from reading them?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments import parallel
from experiments.benchmark import breeds
from experiments.benchmark.asked import ANNOTATED, Row, inspected
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.report import found, listed
from experiments.benchmark.training import plain_step, right, trained
from experiments.fixes.arms import guided
from experiments.real_models.samples import Pets
from experiments.records import named
from experiments.table import markdown, mean_interval

ARMS, COLOURS = ("plain", "swap"), "colours"
SEEDS = range(6)
SHOWN = ("whole", "background alone", "pet alone")
PERMUTATIONS = 1000
NUMBER = 950


@dataclass(frozen=True)
class Run:
    """A training on photographs without marks.

    Attributes:
        arm: One of `ARMS`, or `COLOURS` for no network.
        seed: Of everything random.
    """

    arm: str
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.arm} | seed {self.seed}"


def planned() -> list[Run]:
    """The background's colours alone, and both trainings with every seed."""
    return [Run(COLOURS, 0), *(Run(arm, seed) for seed in SEEDS for arm in ARMS)]


def judged(run: Run) -> Row:
    """Train a network, and see what it knows of whole photographs, of backgrounds alone, and of pets alone."""
    if run.arm == COLOURS:
        return told_by_colours()
    case = Case("pets", NO_MARK, 1.0, NUMBER + run.seed)
    held_out = breeds.samples(case, "test", breeds.HELD_OUT, 1)(True)
    step = plain_step if run.arm == "plain" else guided(case, "swap")
    net, _ = trained(case, breeds.samples(case, "train", breeds.TRAIN, 0)(True), step)
    said = named(inspected(net, held_out, case, breeds.look(case), ANNOTATED).findings)
    row: Row = {ANNOTATED: {"named": said}, "whole": right(net, held_out).mean()}
    # 0 is the mean colour; the edge that nobody annotated is hidden with either.
    for name, shown in (("background alone", held_out["mask"] == 0), ("pet alone", held_out["mask"] == 1)):
        row[name] = right(net, {**held_out, "image": held_out["image"] * shown[:, None]}).mean()
    return row


def told_by_colours() -> Row:
    """Share of the test photographs whose breed a logistic regression tells by `colours`, and the p-value of that."""
    (train, labels), (test, truth) = ((colours(x), x.label.numpy()) for x in map(breeds.stock, ("train", "test")))
    regression = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    share = regression.fit(train, labels).score(test, truth)
    rng = np.random.default_rng(0)
    chance = [regression.fit(train, rng.permutation(labels)).score(test, truth) for _ in range(PERMUTATIONS)]
    return {"share": share, "p": (1 + sum(x >= share for x in chance)) / (1 + PERMUTATIONS)}


def colours(photographs: Pets) -> Float[np.ndarray, "n features"]:
    """Means, spreads and quantiles of the background's colours: neither place nor shape is in them."""
    found = []
    for image, mask in zip(photographs.image, photographs.mask, strict=True):
        pixels = image[:, mask == 0]
        quantiles = torch.quantile(pixels, torch.tensor([0.1, 0.5, 0.9]), dim=1).flatten()
        found.append(torch.cat([pixels.mean(1), pixels.std(1), quantiles]))
    return torch.stack(found).numpy()


def table(runs: Sequence[parallel.Run]) -> str:
    """A row a training, their means, and by how much `swap` is above plain training."""
    saved = {run["key"]: run for run in runs}
    if not {run.key for run in planned()} <= saved.keys():
        return markdown([])
    by_arm = {arm: [saved[Run(arm, seed).key] for seed in SEEDS] for arm in ARMS}
    rows = [
        {"training": run["key"].replace(" |", ",")}
        | {name: f"{run[name]:.2f}" for name in SHOWN}
        | {"faults": listed(found(run, ANNOTATED))}
        for some in by_arm.values()
        for run in some
    ]
    of = {arm: {name: np.array([run[name] for run in some]) for name in SHOWN} for arm, some in by_arm.items()}
    for arm, shares in of.items():
        rows.append(
            {"training": f"{arm}, mean", **{name: f"{x.mean():.2f}" for name, x in shares.items()}, "faults": ""}
        )
    difference = {
        name: "{:+.0f} ± {:.0f}".format(*mean_interval(100 * (of["swap"][name] - of["plain"][name]))) for name in SHOWN
    }
    rows.append({"training": "swap minus plain, points", **difference, "faults": ""})
    colours = saved[Run(COLOURS, 0).key]
    return f"{markdown(rows)}\n\nBy the background's colours alone: {colours['share']:.2f}, p = {colours['p']:.3f}."
