"""What a guidance without a weight does to a BERT, beside none and a weight of 1: tweets with a planted word.

`python -m experiments.guidance.default_weight` makes the runs that are missing and prints the table.
"""

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from experiments.command import no_options
from experiments.guidance import texts, tweets
from experiments.guidance.arms import PLAIN
from experiments.guidance.fitting import quiet_trainer
from experiments.minilm import network
from experiments.records import append
from lrptrain.callbacks import RelevanceGuidance

RESULTS = Path(__file__).resolve().parent / "results" / "default_weight.jsonl"
LOSS = "consistency+energy"
# The arguments of RelevanceGuidance beside the loss; None is no guidance at all.
ARMS: dict[str, dict[str, Any] | None] = {"none": None, "weight 1": {"weight": 1.0}, "default": {}}
SEEDS = (0, 1, 2)
# As many steps for every arm: the question is what the default does to a run, not what its compute is worth.
STEPS = 120


def train(arm: str, seed: int) -> dict[str, Any]:
    """Fine-tune MiniLM on tweets of which 98 % hold a word of their class; accuracy with that word and without it."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    columns = tweets.tweets("train", tweets.MAIN["correlation"], seed)
    plain = tweets.ARMS[PLAIN]
    module = texts.module(network(seed), plain, tweets.LR)
    options = ARMS[arm]
    callbacks = [] if options is None else [RelevanceGuidance(LOSS, seed=seed, **options)]
    started = time.monotonic()
    quiet_trainer(STEPS, callbacks, module.trained_in).fit(module, texts.loader(columns, plain, tweets.BATCH, seed))
    seconds = time.monotonic() - started
    module.eval()
    return {
        "arm": arm,
        "seed": seed,
        "with word": texts.right(module.net, tweets.tweets("test", tweets.MAIN["correlation"], seed)),
        "without word": texts.right(module.net, tweets.tweets("test", None, seed)),
        "seconds": round(seconds),
    }


def saved_runs() -> list[dict[str, Any]]:
    """The runs that are done."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def table(runs: list[dict[str, Any]]) -> str:
    """A row per arm: accuracy of every seed."""
    rows = ["| guidance | accuracy with the word | without it |", "| --- | --- | --- |"]
    for arm in ARMS:
        own = sorted((run for run in runs if run["arm"] == arm), key=lambda run: run["seed"])
        columns = (" / ".join(f"{run[column]:.3f}" for run in own) for column in ("with word", "without word"))
        rows.append(f"| {arm} | {' | '.join(columns)} |")
    return "\n".join(rows)


def main() -> None:
    """Make the runs that are missing, and print the table."""
    no_options(__doc__)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    done = {(run["arm"], run["seed"]) for run in saved_runs()}
    for seed in SEEDS:
        for arm in ARMS:
            if (arm, seed) not in done:
                append(RESULTS, train(arm, seed))
    print(table(saved_runs()))


if __name__ == "__main__":
    main()
