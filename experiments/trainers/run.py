"""Is it the same in every trainer? See README.md.

    .venv/bin/python -m experiments.trainers.run

A line of `results/runs.jsonl` per run, saved as soon as it is there; what was cut off goes on with what is missing.
"""

import json
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.command import no_options
from experiments.guidance import tweets
from experiments.guidance.measures import accuracy
from experiments.guidance.texts import inputs, parts
from experiments.minilm import network
from experiments.records import append
from experiments.short_tweets import tokenizer
from experiments.table import markdown, write_between
from experiments.trainers.loops import BATCH, TRAINERS, quiet
from lrptrain.findings import reliance

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "runs.jsonl"
SEEDS = (0, 1, 2)
STEPS = 120
CORRELATION = 0.98
ARMS = {"none": None, "swap": "swap", "consistency+energy": "consistency+energy", "rationale_bce": "rationale_bce"}
"""The guidance losses, without a weight."""


def runs_of(seed: int, arm: str) -> list[dict[str, Any]]:
    """Fine-tune one network in every trainer; the first is what the weights of the others are compared with."""
    torch.set_num_threads(1)
    start = network(seed)
    data = tweets.tweets("train", CORRELATION, seed)
    order = torch.randperm(len(data["label"]), generator=torch.Generator().manual_seed(seed))
    train = {name: column[order.repeat(2)[: STEPS * BATCH]] for name, column in data.items()}
    val = tweets.tweets("val", CORRELATION, seed)
    runs: list[dict[str, Any]] = []
    reference: nn.Module | None = None
    for name, fine_tune in TRAINERS.items():
        net = deepcopy(start)
        with tempfile.TemporaryDirectory() as folder:
            findings = fine_tune(net, train, val, ARMS[arm], Path(folder), tokenizer())
        net.eval()
        reference = reference or net
        named = [each for each in findings if each.is_fault]
        runs.append(
            {
                "seed": seed,
                "arm": arm,
                "trainer": name,
                "with word": right(net, tweets.tweets("test", CORRELATION, seed)),
                "without word": right(net, tweets.tweets("test", None, seed)),
                "conflicting": right(net, tweets.tweets("test", 0.0, seed)),
                "named": sorted({each.name for each in named}),
                "reliance": reliance(findings),
                "furthest weight": furthest(net, reference),
            }
        )
        print(runs[-1], flush=True)
    return runs


@torch.no_grad()
def right(net: nn.Module, texts: dict[str, torch.Tensor]) -> float:
    """Accuracy in float32."""
    return accuracy(torch.cat([net(**inputs(part)).logits for part in parts(texts)]), texts["label"])


def furthest(net: nn.Module, reference: nn.Module) -> float:
    """Largest difference of a weight."""
    pairs = zip(net.state_dict().values(), reference.state_dict().values(), strict=True)
    return max(float((value.double() - other.double()).abs().max()) for value, other in pairs)


def saved_runs() -> list[dict[str, Any]]:
    """The runs that are done."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def table(runs: list[dict[str, Any]]) -> str:
    """A row per trainer and arm, the seeds side by side; earlier runs have no reliance."""
    columns = ["with word", "without word", "conflicting"]
    columns += ["reliance"] * any("reliance" in run for run in runs)
    rows = []
    for arm in ARMS:
        for trainer in TRAINERS:
            chosen = [run for run in runs if (run["arm"], run["trainer"]) == (arm, trainer)]
            chosen.sort(key=lambda run: run["seed"])
            row = {"guidance": arm, "trainer": trainer}
            for name in columns:
                row[name] = " / ".join(f"{run[name]:.3f}" for run in chosen if name in run)
            row["furthest weight"] = f"{max((run['furthest weight'] for run in chosen), default=0):.1g}"
            rows.append(row)
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    quiet()
    done = {(run["seed"], run["arm"]) for run in saved_runs()}
    for seed in SEEDS:
        for arm in ARMS:
            if (seed, arm) not in done:
                runs = runs_of(seed, arm)
                for run in runs:
                    append(RESULTS, run)
    write_between(HERE / "README.md", table(saved_runs()))


if __name__ == "__main__":
    main()
