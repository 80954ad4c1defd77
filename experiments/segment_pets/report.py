"""From saved runs to tables: means with 95 % intervals over seeds, and paired differences."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from experiments.intervals import compared, estimate, paired, signed
from experiments.parallel import Run
from experiments.segment_pets.stages import CENTRE, FEW, GIVEN, PSEUDO, REFINEMENTS, SAID
from experiments.table import markdown, mean_interval

MODELS = ("plain", "guided")
COLUMNS = ("test", "test, refined", f"test{SAID}", f"test{GIVEN}", "test, pet")


def of(runs: Sequence[Run], **wanted: object) -> list[Run]:
    """The runs with these values."""
    return [run for run in runs if all(run.get(name) == value for name, value in wanted.items())]


def mean_of(runs: Sequence[Run], column: str, **wanted: object) -> float:
    """Over the seeds."""
    return float(np.mean([run[column] for run in of(runs, **wanted)]))


def cell(runs: Sequence[Run], column: str) -> str:
    """Mean and half width in percent; empty where a run lacks it."""
    if not runs or any(column not in run for run in runs):
        return ""
    mean, half = mean_interval([100 * run[column] for run in runs])
    return f"{mean:.1f}" if np.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def tables(found: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """The text between each pair of marks of README.md."""
    return {
        "classifiers": _classifiers(found["classifiers"]),
        "sources": _sources(found["sources"]),
        "refined": _refined(found["refined"]),
        "segmenters": _segmenters(found["segmenters"], found["refined"]),
    }


def _classifiers(runs: Sequence[Run]) -> str:
    own = {model: of(runs, arm=model) for model in MODELS}
    return markdown(
        [{"classifier": m, **{s: cell(x, s) for s in ("train", "val", "test")}} for m, x in own.items() if x]
    )


def _sources(runs: Sequence[Run]) -> str:
    usable = [run for run in runs if "unsupported" not in run]
    reasons = dict.fromkeys(run["unsupported"].split(",")[0] for run in runs if "unsupported" in run)
    columns = ("val", "train", "train, pet")
    everything = [run for run in usable if run["images"] is None]
    text = _ranked(everything, columns)
    dear = [run["arm"] for run in usable if run["images"] is not None]
    beside = sorted({run["arm"] for run in everything}, key=lambda arm: -mean_of(everything, "val", arm=arm))[:5]
    few = [{**run, **_few(run)} for run in usable if run["arm"] in {*dear, *beside, CENTRE}]
    if dear:
        text += f"\n\nThe dear ones, on the first {few[0]['count']} images of each split, with others on the same:\n\n"
        text += _ranked(few, columns)
    return text + (f"\n\nWithout a row: {'; '.join(reasons)}." if reasons else "")


def _few(run: Run) -> Run:
    own = {name.removesuffix(", few"): x for name, x in run.items() if name.endswith(", few")}
    return {"count": FEW, **own}


def _ranked(runs: Sequence[Run], columns: Sequence[str]) -> str:
    arms = sorted(dict.fromkeys(run["arm"] for run in runs), key=lambda arm: -mean_of(runs, columns[1], arm=arm))
    differences = compared(
        {arm: _by_seed(of(runs, arm=arm), columns[1]) for arm in arms}, CENTRE, same_samples=False, digits=1
    )
    return markdown(
        [
            {"seeds": arm}
            | {name: cell(of(runs, arm=arm), name) for name in columns}
            | {f"{columns[1]}, minus {CENTRE}": differences[arm]}
            for arm in arms
        ]
    )


def _by_seed(runs: Sequence[Run], column: str) -> list[list[float]]:
    """In percent, each as the one number of its seed."""
    return [[100 * run[column]] for run in sorted(runs, key=lambda run: run["seed"])]


def _refined(runs: Sequence[Run]) -> str:
    keys = list(product(dict.fromkeys((run["arm"], run["model"]) for run in runs), REFINEMENTS))
    tested = {
        ((arm, model), name): _by_seed(of(runs, arm=arm, model=model), f"{name} | test") for (arm, model), name in keys
    }
    prior = {name: _by_seed(of(runs, arm=CENTRE), f"{name} | test") for name in REFINEMENTS}
    differences = signed(
        {
            (own, name): estimate(paired(found, prior[name]), same_samples=False)
            for (own, name), found in tested.items()
            if own[0] != CENTRE
        },
        digits=1,
    )
    rows = []
    for (arm, model), name in keys:
        own = of(runs, arm=arm, model=model)
        columns = {x: cell(own, f"{name} | {x}") for x in ("val", "train", "train, pet", "test", f"test{SAID}")}
        rows.append({"seeds": arm, "classifier": model, "refinement": name, **columns})
        rows[-1][f"test, minus {CENTRE}"] = differences.get(((arm, model), name), "")
    return markdown(rows)


def _segmenters(runs: Sequence[Run], refined: Sequence[Run]) -> str:
    rows, full = [], of(runs, arm="full masks")
    for arm, model in dict.fromkeys((run["arm"], run["model"]) for run in runs):
        own = of(runs, arm=arm, model=model)
        row = {"trained on": arm, "classifier": model}
        row |= {name: cell(own, name) for name in COLUMNS}
        shares = [run["test"] / other["test"] for run in own for other in of(full, seed=run["seed"])]
        row["share of full"] = cell([{"share": share} for share in shares], "share")
        source, name = own[0]["source"], own[0]["refinement"]
        masks = of(refined, arm=source, model=model) if arm.startswith(PSEUDO) else []
        row |= {f"its pseudo-masks, {x}": cell(masks, f"{name} | {x}") for x in (f"test{SAID}", "test")}
        rows.append(row)
    return markdown(rows)
