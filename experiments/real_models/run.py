"""Real pretrained models: their maps, and shortcuts that they learn to rely on.

    .venv/bin/python -m experiments.real_models.run [--only maps|cells|birds|words|tables] [--seeds 3]

Fetches the weights (`experiments/weights.py`). One line per model or training in `results/`; a run that was cut off
goes on with what is missing. The tables are written into this folder's README.md.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from experiments.intervals import estimate, paired, starred
from experiments.parallel import load
from experiments.real_models import birds, cell, words
from experiments.real_models.maps import METHODS, MODELS
from experiments.records import append
from experiments.table import markdown, mean_interval, write_between

HERE = Path(__file__).resolve().parent
MAPS, CELLS = HERE / "results" / "maps.jsonl", HERE / "results" / "cells.jsonl"
BIRDS, WORDS = HERE / "results" / "birds.jsonl", HERE / "results" / "words.jsonl"
MEASURES = ("faithfulness", "EPG", "pointing game")
TESTED = ("with the watermark as in training", "without", "marked breed without", "turned by it")


def maps_table(runs: Mapping[str, Any]) -> str:
    """A row per model and method; paired with random, sample by sample."""
    served = {
        (name, method): run["methods"][method]
        for name, run in runs.items()
        for method in METHODS
        if "unsupported" not in run["methods"][method]
    }
    above = {
        (name, method): estimate(
            paired([row["faithfulness"]], [runs[name]["methods"]["random"]["faithfulness"]]), same_samples=True
        )
        for (name, method), row in served.items()
        if method != "random"
    }
    stars = starred(above)
    rows = []
    for key, row in served.items():
        line = {"model": f"{key[0]} ({runs[key[0]]['accuracy']:.0%} right)", "method": f"`{key[1]}`"}
        line |= {measure: str(estimate([row[measure]], same_samples=True)) for measure in MEASURES}
        line["minus `random`"] = f"{above[key]}{' *' if key in stars else ''}" if key in above else ""
        line["s per sample"] = f"{row['seconds'] / len(row['EPG']):.1f}"
        rows.append(line)
    moved = max(max(row["logits moved"]) for row in served.values())
    chance = ", ".join(
        f"{name} {estimate([run['methods']['random']['chance']], same_samples=True).mean:.2f}"
        for name, run in runs.items()
    )
    return (
        f"{markdown(rows)}\n\nChance level of EPG: {chance}. Logits of the recorded model differ from its own by "
        f"{moved:.0e} at most. `*`: above `random` on the same samples, p <= 0.05 after Holm's correction."
    )


def cells_table(runs: Mapping[str, Any]) -> str:
    """A row per place and arm: accuracies, and what the monitor said."""
    rows = []
    for place, arm in product(cell.PLACES, cell.ARMS):
        chosen = [run for run in runs.values() if (run["place"], run["arm"]) == (place, arm)]
        if chosen:
            rows.append({"watermark": place, "arm": arm} | _cells(chosen, TESTED))
    return markdown(rows)


def arms_table(runs: Mapping[str, Any], arms: Sequence[str], tested: Sequence[str]) -> str:
    """A row per arm: accuracies, and what the monitor said."""
    by_arm = {arm: [run for run in runs.values() if run["arm"] == arm] for arm in arms}
    return markdown([{"arm": arm} | _cells(chosen, tested) for arm, chosen in by_arm.items() if chosen])


def _cells(chosen: Sequence[Mapping[str, Any]], tested: Sequence[str]) -> dict[str, str]:
    """Of the runs of one arm: means over seeds, how many have a confirmed finding, and of which kinds."""
    row = {}
    for name in tested:
        mean, half = mean_interval([run[name] for run in chosen])
        row[name] = f"{mean:.2f} ± {half:.2f}" if len(chosen) > 1 else f"{mean:.2f}"
    confirmed = [{each["kind"] for each in run["findings"] if each["state"] == "confirmed"} for run in chosen]
    kinds = ", ".join(f"`{kind}`" for kind in sorted(set().union(*confirmed)))
    row["confirmed findings"] = f"{sum(map(bool, confirmed))} of {len(chosen)}" + (f": {kinds}" if kinds else "")
    row["s"] = f"{mean_interval([run['seconds'] for run in chosen])[0]:.0f}"
    return row


def complete(path: Path, key: str, work: Callable[[], dict[str, Any]]) -> None:
    """Do what is missing, and save it."""
    if key not in load(path):
        append(path, {"key": key, **work()})
        print(key, flush=True)


def tables() -> dict[str, str]:
    """The text between each pair of marks of README.md."""
    return {
        "maps": maps_table(load(MAPS)),
        "cells": cells_table(load(CELLS)),
        "birds": arms_table(load(BIRDS), birds.ARMS, birds.TESTED),
        "words": arms_table(load(WORDS), words.ARMS, words.TESTED),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["maps", "cells", "birds", "words", "tables"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--places", nargs="*", choices=list(cell.PLACES), default=list(cell.PLACES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only in (None, "maps"):
        for name, work in MODELS.items():
            complete(MAPS, name, work)
    if arguments.only in (None, "cells"):
        for seed, place, arm in product(range(arguments.seeds), arguments.places, cell.ARMS):
            complete(CELLS, f"{place}, {arm}, seed {seed}", partial(cell.run, place, arm, seed, HERE / "runs"))
    for name, path, part in (("birds", BIRDS, birds), ("words", WORDS, words)):
        if arguments.only in (None, name):
            for seed, arm in product(range(arguments.seeds), part.ARMS):
                complete(path, f"{arm}, seed {seed}", partial(part.run, arm, seed, HERE / "runs"))
    for mark, text in tables().items():
        write_between(HERE / "README.md", text, f"<!-- {mark} -->", f"<!-- end of {mark} -->")


if __name__ == "__main__":
    main()
