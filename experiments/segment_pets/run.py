"""From image labels to masks of pets: seeds, refinements, segmenters, and what a few masks buy. See README.md.

    .venv/bin/python -m experiments.segment_pets.run

Every run is a line in `results/`; what was cut off goes on with what is missing. What a later stage takes from an
earlier one is chosen on the validation images, by the mean over the seeds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.parallel import Run, complete, load
from experiments.segment_pets.report import mean_of, tables
from experiments.segment_pets.stages import (
    CENTRE,
    METHODS,
    PLAIN_ARMS,
    PSEUDO,
    REFINEMENTS,
    SOURCES,
    Task,
    refined,
    segmenters,
    source,
    trained,
)
from experiments.table import write_between

HERE = Path(__file__).resolve().parent

RESULTS, BEST = HERE / "results", 2
"""How many sources are refined, of those that ask for a class and of those that do not."""


def best(runs: Sequence[Run], count: int) -> list[str]:
    """The sources with the highest mean IoU on the validation images, of those with all images; so many of each kind.

    Images of several classes need maps that ask for a class; here every image has one.
    """
    arms = dict.fromkeys(run["arm"] for run in runs if run.get("images") is None and "val" in run)
    methods = sorted(arms.keys() & METHODS.keys() - {"random"}, key=lambda arm: -mean_of(runs, "val", arm=arm))
    return [
        arm
        for specific in (False, True)
        for arm in [arm for arm in methods if METHODS[arm].class_specific is specific][:count]
    ]


def best_masks(runs: Sequence[Run], sources: Sequence[str]) -> tuple[str, str]:
    """The source, with or without the centre prior, and the refinement that are best on the validation images."""
    arms = [f"{name}{suffix}" for name in sources for suffix in ("", f" x {CENTRE}")]
    pairs = [(arm, name) for arm in arms for name in REFINEMENTS]
    return max(pairs, key=lambda pair: mean_of(runs, f"{pair[1]} | val", arm=pair[0], model="plain"))


def best_refinement(runs: Sequence[Run]) -> str:
    """Of the centre prior alone, on the validation images: what masks are worth in which no relevance went."""
    return max(REFINEMENTS, key=lambda name: mean_of(runs, f"{name} | val", arm=CENTRE, model="plain"))


def stages(seeds: Sequence[int], workers: int) -> dict[str, list[Run]]:
    """All runs of all stages, in the order in which they need each other."""
    found: dict[str, list[Run]] = {}

    def done(name: str, tasks: Sequence[Task], work) -> None:
        runs = complete(RESULTS / f"{name}.jsonl", tasks, work, workers)
        found[name] = [run for run in runs.values() if run["seed"] in seeds]

    done("classifiers", [Task(seed, model, model) for model in ("plain", "guided") for seed in seeds], trained)
    done("sources", [Task(seed, arm) for seed in seeds for arm in SOURCES], source)
    sources = best(found["sources"], BEST)
    arms = [CENTRE, *(f"{name}{suffix}" for name in sources for suffix in ("", f" x {CENTRE}"))]
    done("refined", [Task(seed, arm) for seed in seeds for arm in arms], refined)
    arm, name = best_masks(found["refined"], sources)
    guided = [Task(seed, each, "guided") for each in dict.fromkeys([arm, *sources]) for seed in seeds]
    done("refined", [*guided, *(Task(seed, arm) for seed in seeds for arm in arms)], refined)
    tasks = [Task(seed, kind, "plain", arm, name) for seed in seeds for kind in PLAIN_ARMS]
    tasks += [Task(seed, PSEUDO, "guided", arm, name) for seed in seeds]
    tasks += [Task(seed, f"{PSEUDO}, {CENTRE}", "plain", CENTRE, best_refinement(found["refined"])) for seed in seeds]
    done("segmenters", tasks, segmenters)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--tables", action="store_true", help="only write the tables of what is saved")
    given = arguments.parse_args()
    if given.tables:
        names = ("classifiers", "sources", "refined", "segmenters")
        saved = {name: list(load(RESULTS / f"{name}.jsonl").values()) for name in names}
        found = {name: [run for run in runs if run["seed"] in given.seeds] for name, runs in saved.items()}
    else:
        found = stages(given.seeds, given.workers)
    for name, text in tables(found).items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
