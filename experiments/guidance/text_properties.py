"""What tweets have as a whole tells their mood: their length, a mark of punctuation, or a number. Does a swap mend it?

`python -m experiments.guidance.text_properties` makes the runs that are missing, and writes the table into README.md.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from experiments.benchmark.text_marks import Mark, number, punctuation
from experiments.command import no_options
from experiments.detection.texts import LONGEST, longer
from experiments.guidance import texts, tweets
from experiments.guidance.arms import PLAIN, UPPER, Arm, Task
from experiments.guidance.baselines import IN_DISTRIBUTION_GOAL, WORST_GROUP_GOAL
from experiments.guidance.benchmarks import model_columns
from experiments.guidance.confirmed import GROUP_DRO, RIVAL
from experiments.guidance.fitting import Trained, findings_of, fit, fit_on_findings
from experiments.guidance.report import held_to, shown
from experiments.guidance.results import complete
from experiments.guidance.texts import Texts
from experiments.intervals import estimate
from experiments.minilm import network
from experiments.parallel import Run, load
from experiments.short_tweets import tokenizer
from experiments.table import markdown, write_between
from lrptrain.batch.parts import TextProperty
from lrptrain.data.texts import Example
from lrptrain.findings import Finding, unfold

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "text_properties.jsonl"
MARKS = ("<!-- text properties -->", "<!-- end of text properties -->")
SEEDS = (0, 1, 2, 3, 4)
CORRELATION, SHUFFLED = 0.98, 0.5
"""The share of texts with their own mood's form of a property: in training, and where it tells nothing of two moods."""
BY_NAME, OF_FINDING = "swap, by name", "swap of the finding judged a fault, trained anew"
INFORMED = {
    PLAIN: "none",
    UPPER: "",
    BY_NAME: "the property",
    OF_FINDING: "the judgement",
    GROUP_DRO: "groups of all",
}
"""What each arm is told beside the classes."""
TESTS = {"accuracy": CORRELATION, "shuffled": SHUFFLED, "agreeing": 1.0, "conflicting": 0.0}
COLUMNS = ("accuracy", "shuffled", "worst group")
SPLITS = ("train", "val", "test")


def short_or_long(example: Example, form: int, rng: np.random.Generator) -> Example:
    """The tweet alone, or with another one behind it, of no mood."""
    return longer(example, rng) if form else example


PLANTS: dict[TextProperty, Mark] = {"length": short_or_long, "punctuation": punctuation, "markers": number}
"""Each writes a text in one of two forms. Case is left out: the model reads no capitals."""


def columns(kind: TextProperty, split: str, agreeing: float, seed: int) -> Texts:
    """A split's tweets, in so large a share with the property in the form of their own mood, the others in the other's.

    Args:
        kind: The property.
        split: "train", "val" or "test".
        agreeing: The share.
        seed: Of what is drawn.
    """
    examples = tweets.pools()[split]
    rng = np.random.default_rng([seed, SPLITS.index(split), list(PLANTS).index(kind)])
    group = (rng.random(len(examples)) < agreeing).astype(int)
    forms = [each.label if own else 1 - each.label for each, own in zip(examples, group, strict=True)]
    planted = [PLANTS[kind](each, form, rng) for each, form in zip(examples, forms, strict=True)]
    encoded = texts.encoded(planted, LONGEST)
    del encoded["rationale"]  # no arm is told what is evidence
    return {**encoded, "group": torch.from_numpy(group)}


def train(task: Task) -> dict[str, Any]:
    """One run: trained, then measured on the test texts."""
    torch.set_num_threads(1)
    kind = task.setting["property"]
    started = time.monotonic()
    if task.arm == OF_FINDING:
        net, swapped = _on_the_finding(kind, task.seed)
    else:
        module = _trained(kind, task.arm, task.seed)
        net, swapped = module.net, []
    seconds = time.monotonic() - started
    return {"seconds": seconds, "swapped": swapped, **tested(net, kind, "test", task.seed)}


def tested(net: nn.Module, kind: TextProperty, split: str, seed: int) -> dict[str, float]:
    """Accuracies of a network with the property as in training, shuffled, and in the worst group."""
    measured = {name: texts.right(net, columns(kind, split, agreeing, seed)) for name, agreeing in TESTS.items()}
    return {**measured, "worst group": min(measured["agreeing"], measured["conflicting"])}


def arm_of(name: str, kind: TextProperty) -> Arm:
    """How an arm trains that no monitor takes part in."""
    if name == BY_NAME:
        return Arm({"loss": "swap", "swap": kind, "tokenizer": tokenizer()})
    if name == GROUP_DRO:
        setting = RIVAL["tweets"]
        return Arm(rule="group_dro", group_step=setting["step"], weight_decay=setting["decay"])
    return Arm(clean=name == UPPER)


def _trained(kind: TextProperty, name: str, seed: int) -> Trained:
    arm = arm_of(name, kind)
    module = texts.module(network(seed), arm, tweets.LR)
    fit(module, _batches(kind, arm, seed), tweets.BUDGET, 0.0, seed)
    return module


def _batches(kind: TextProperty, arm: Arm, seed: int) -> DataLoader:
    data = columns(kind, "train", SHUFFLED if arm.clean else CORRELATION, seed)
    return texts.loader(data, arm, tweets.BATCH, seed)


def _on_the_finding(kind: TextProperty, seed: int) -> tuple[nn.Module, list[str]]:
    """A monitor looks at the plain model; another one is trained on swaps of what a person judges, if it is found."""
    plain = _trained(kind, PLAIN, seed)
    seen = model_columns(columns(kind, "val", CORRELATION, seed))
    fault = judged(findings_of(plain, DataLoader(cast(Dataset, seen), batch_size=None)), kind)
    if fault is None:
        return plain.net, []
    module = texts.module(network(seed), Arm(), tweets.LR)
    fit_on_findings(module, _batches(kind, Arm(), seed), [fault], tweets.BUDGET, seed, tokenizer())
    return module.net, [fault.where]


def judged(findings: Iterable[Finding], kind: TextProperty) -> Finding | None:
    """What a person hands on who knows that a property tells nothing of the mood; None where it is not confirmed."""
    of_kind = (each for each in unfold(findings) if each.kind == f"reliance_on_{kind}" and each.state == "confirmed")
    confirmed = next(of_kind, None)
    return None if confirmed is None else confirmed.as_fault()


def table(runs: Sequence[Run]) -> str:
    """A row per property and arm: accuracies, and those beside plain training, the rival and the upper bound."""
    return markdown([row for kind in PLANTS for row in _rows([run for run in runs if run["property"] == kind], kind)])


def _rows(runs: Sequence[Run], kind: TextProperty) -> list[dict[str, str]]:
    own = {arm: {run["seed"]: run for run in runs if run["arm"] == arm} for arm in INFORMED}
    rows = []
    for arm in (arm for arm in INFORMED if own[arm]):
        by_seed = own[arm]
        row = {"property": kind, "arm": arm, "is told": INFORMED[arm], "seeds": str(len(by_seed))}
        row |= {column: shown([run[column] for run in by_seed.values()]) for column in COLUMNS}
        confirmed = sum(bool(run["swapped"]) for run in by_seed.values())
        row["confirmed in"] = f"{confirmed} of {len(by_seed)}" if arm == OF_FINDING else ""
        row["worst group, less plain's"] = "" if arm == PLAIN else _signed(_less(by_seed, own[PLAIN], "worst group"))
        beside_rival = _less(by_seed, own[GROUP_DRO], "worst group")
        row["worst group, less the rival's"] = (
            "the rival" if arm == GROUP_DRO else _held(beside_rival, WORST_GROUP_GOAL)
        )
        beside_upper = _less(by_seed, own[UPPER], "accuracy")
        row["accuracy, less the upper bound's"] = "" if arm == UPPER else _held(beside_upper, IN_DISTRIBUTION_GOAL)
        rows.append(row)
    return rows


def _less(by_seed: dict[int, Run], others: dict[int, Run], column: str) -> list[float]:
    """The differences of two arms, seed by seed."""
    return [by_seed[seed][column] - others[seed][column] for seed in sorted(by_seed.keys() & others.keys())]


def _held(differences: Sequence[float], goal: float) -> str:
    return held_to(differences, goal) if len(differences) > 2 else ""


def _signed(differences: Sequence[float]) -> str:
    if len(differences) < 3:
        return ""
    difference = estimate([[each] for each in differences], same_samples=False)
    return f"{difference.mean:+.3f} ± {difference.half:.3f}"


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    tasks = [Task(arm, seed, {"property": kind}) for seed in SEEDS for kind in PLANTS for arm in INFORMED]
    complete(RESULTS, tasks, train, 2)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
