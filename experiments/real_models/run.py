"""Real pretrained models: their maps, and shortcuts that they learn to rely on.

    .venv/bin/python -m experiments.real_models.run [--only maps|cells|birds|scenes|words|tables] [--seeds 3]

Fetches the weights (`experiments/weights.py`). One line per model or training in `results/`; a run that was cut off
goes on with what is missing. The tables are written into this folder's README.md. With `--size` or `--epochs`, cells
are timed: they get a table of their own.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from experiments.parallel import load
from experiments.real_models import birds, cell, pet_scenes, words
from experiments.real_models.maps import MODELS
from experiments.real_models.measured import Run
from experiments.real_models.report import arms_table, maps_table, timed_table, unmarked_table
from experiments.real_models.watched import PLAIN
from experiments.records import append
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
RESULTS, RUNS = HERE / "results", HERE / "runs"
MAPS, CELLS, TIMED = RESULTS / "maps.jsonl", RESULTS / "cells.jsonl", RESULTS / "timed.jsonl"
BIRDS, SCENES, WORDS = RESULTS / "birds.jsonl", RESULTS / "scenes.jsonl", RESULTS / "words.jsonl"


def complete(path: Path, key: str, work: Callable[[], dict[str, Any]]) -> None:
    """Do what is missing, and save it."""
    if key not in load(path):
        append(path, {"key": key, **work()})
        print(key, flush=True)


def tables() -> dict[str, str]:
    """The text between each pair of marks of README.md."""

    def arm(run: Run) -> str:
        return str(run["arm"])

    found = load(MAPS)
    by_place = {"watermark": lambda run: run["place"], "arm": arm}
    by_network = {"model": lambda run: run["network"], "arm": arm}
    by_model = {"model": lambda run: run["model"], "arm": arm}
    by_corpus = {"texts": lambda run: run["corpus"], "arm": arm}
    return {
        "maps": maps_table({name: found[name] for name in MODELS if name in found}),
        "cells": arms_table(load(CELLS), by_place, cell.MEASURES, "turned by it", PLAIN),
        "timed": timed_table(load(TIMED)),
        "birds": arms_table(load(BIRDS), by_network, birds.MEASURES, "worst group", PLAIN),
        "scenes": arms_table(load(SCENES), by_model, pet_scenes.MEASURES, pet_scenes.MEASURES[-1].name, PLAIN),
        "unmarked": unmarked_table([*load(BIRDS).values(), *load(SCENES).values()]),
        "words": arms_table(load(WORDS), by_corpus, words.MEASURES, words.TESTED[-1], PLAIN),
    }


def cells(arguments: argparse.Namespace) -> None:
    """All watermarks that were asked for, seed by seed; those of another size or length only to be timed."""
    options = {"size": arguments.size, "epochs": arguments.epochs}
    for seed, place, arm in product(range(arguments.seeds), arguments.places, arguments.arms or cell.ARMS):
        key = f"{place}, {arm}, seed {seed}"
        path = CELLS
        if options != {"size": cell.SIZE, "epochs": cell.EPOCHS}:
            key = f"{key}, {arguments.size} px, {arguments.epochs} epochs"
            path = TIMED
        complete(path, key, partial(cell.run, place, arm, seed, RUNS, **options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["maps", "cells", "birds", "scenes", "words", "tables"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--arms", nargs="*", metavar="ARM", help="of cells, birds, scenes and words: all, if none is named"
    )
    parser.add_argument("--places", nargs="*", choices=list(cell.PLACES), default=list(cell.PLACES))
    parser.add_argument("--networks", nargs="*", choices=list(birds.NETWORKS), default=list(birds.NETWORKS))
    parser.add_argument("--corpora", nargs="*", choices=list(words.CORPORA), default=list(words.CORPORA))
    parser.add_argument("--size", type=int, default=cell.SIZE, help="pixels of a cell's photographs")
    parser.add_argument(
        "--epochs", type=int, default=cell.EPOCHS, help="of a cell, which is watched twice, or once in one epoch"
    )
    arguments = parser.parse_args()
    known = {*cell.ARMS, *birds.ARMS, *pet_scenes.ARMS, *words.ARMS}
    if unknown := set(arguments.arms or ()) - known:
        parser.error(f"no arm is called {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    torch.set_num_threads(1)
    if arguments.only in (None, "maps"):
        for name, work in MODELS.items():
            complete(MAPS, name, work)
    if arguments.only in (None, "cells"):
        cells(arguments)
    if arguments.only in (None, "birds"):
        for seed, name, arm in product(range(arguments.seeds), arguments.networks, arguments.arms or birds.ARMS):
            complete(BIRDS, f"{name}, {arm}, seed {seed}", partial(birds.run, name, arm, seed, RUNS))
    if arguments.only in (None, "scenes"):
        for seed, arm in product(range(arguments.seeds), arguments.arms or pet_scenes.ARMS):
            complete(SCENES, f"{arm}, seed {seed}", partial(pet_scenes.run, arm, seed))
    if arguments.only in (None, "words"):
        for seed, name, arm in product(range(arguments.seeds), arguments.corpora, arguments.arms or words.ARMS):
            complete(WORDS, f"{name}, {arm}, seed {seed}", partial(words.run, arm, seed, RUNS, name))
    for mark, text in tables().items():
        write_between(HERE / "README.md", text, f"<!-- {mark} -->", f"<!-- end of {mark} -->")


if __name__ == "__main__":
    main()
