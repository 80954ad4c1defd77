"""What does `lrptrain.inspect` find on kinds of shortcut that it was not built on? See README.md.

    .venv/bin/python -m experiments.inspection.run [--workers 2]
    .venv/bin/python -m experiments.inspection.run --tables

Every run is a line in `results/cues.jsonl`; what was cut off goes on with what is missing. `results/runs.jsonl` is
frozen: an earlier inspection, and the monitor before cues, on the same models.
"""

import argparse
import io
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.benchmark.cases import IMAGE_KINDS, NO_MARK, Case
from experiments.benchmark.scoring import share, shows
from experiments.benchmark.watch import ANNOTATED, BARE, MOMENTS, bare, named, prepared, right, rounded, trained
from experiments.parallel import Run, complete, load
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS, FROZEN = HERE / "results" / "cues.jsonl", HERE / "results" / "runs.jsonl"
BUILT_ON = (
    "clouds", "ghost", "depth", "shadow", "ruler", "streak", "glare", "saturation", "channels", "grain", "pen", "toned",
)  # fmt: skip
"""Kinds on which the cues were tried while they were written: no run of theirs is here."""
IMAGES = tuple(kind for kind in IMAGE_KINDS if kind not in BUILT_ON)
TEXTS = ("deidentified", "transcript", "broken", "escaped")
"""Likewise."""
CORRELATION, SEED = 0.95, 2000
CLEAN_IMAGES, CLEAN_TEXTS = 8, 4
Row = dict[str, Any]


class Asked(NamedTuple):
    """What was asked of the models of all runs.

    Attributes:
        name: In the tables.
        key: Of its part of a run.
        is_frozen: Whether it is in the frozen runs.
    """

    name: str
    key: str
    is_frozen: bool


NOW = [Asked(f"inspect {name}", f"inspect {name}", False) for name in (ANNOTATED, BARE)]
BEFORE = [Asked(f"the inspection before, {name}", f"inspect {name}", True) for name in (ANNOTATED, BARE)]
BEFORE += [Asked(f"the monitor before cues, {name}", f"monitor {name}", True) for name in (ANNOTATED, BARE)]


def planned() -> list[Case]:
    """A run of every kind, and clean ones, of which half hold marks that tell nothing."""
    tasks = ("digits", "photographs")
    what: list[tuple[str, str, float | None]] = [(tasks[i % 2], kind, CORRELATION) for i, kind in enumerate(IMAGES)]
    what += [("texts", kind, CORRELATION) for kind in TEXTS]
    for place in range(CLEAN_IMAGES):
        what.append((tasks[place // 2 % 2], IMAGES[3 * place] if place % 2 else NO_MARK, None))
    for place in range(CLEAN_TEXTS):
        what.append(("texts", TEXTS[place] if place % 2 else NO_MARK, None))
    cases = [Case(*each, SEED, number) for number, each in enumerate(what)]
    # In turn, so that whatever ends early is balanced.
    return sorted(cases, key=lambda case: (case.number * 11) % len(cases))


def watched(case: Case) -> Row:
    """Train, and return what the inspection names at the end, with annotations and without."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    run = prepared(case)
    trained(run, MOMENTS[-1], case.randomness)(MOMENTS[-1])
    shown, unbiased = right(run.net, run.shown), right(run.net, run.unbiased)
    row: Row = {"task": case.task, "kind": case.kind, "correlation": case.correlation}
    row |= {"accuracy": shown.mean(), "accuracy unbiased": unbiased.mean()}
    row |= {"lost": int((shown & ~unbiased).sum()), "won": int((unbiased & ~shown).sum())}
    loader: Any = DataLoader(StackDataset(**run.shown), run.batch)  # type: ignore[arg-type]
    heard = io.StringIO()
    with redirect_stdout(heard), redirect_stderr(heard):
        for name in (ANNOTATED, BARE):
            adapter = None if name == ANNOTATED else bare
            started = time.monotonic()
            report = lrptrain.inspect(
                run.net, loader, batch_adapter=adapter, judge=lrptrain.Judge(seed=case.randomness), **run.look
            )
            seconds = time.monotonic() - started
            row[f"inspect {name}"] = {"named": named(report.findings), "passes": report.passes, "seconds": seconds}
    plain: Row = rounded(row)
    return plain


def used(run: Run) -> bool:
    """Whether a planted shortcut surely costs accuracy; see experiments/benchmark."""
    return run["correlation"] is not None and shows(run)


def named_of(run: Run, key: str, faults: bool) -> list[Run]:
    """What is named of a model: faults, or anything."""
    return [each for each in run[key]["named"] if each["is_fault"] or not faults]


def summary(now: Sequence[Run], frozen: Sequence[Run]) -> str:
    """Of the runs that use their shortcut how many are found, and of the clean ones how many are accused."""
    rows = []
    for each in (*NOW, *BEFORE):
        runs = frozen if each.is_frozen else now
        if not runs:
            continue
        positive = [run for run in runs if used(run)]
        clean = [run for run in runs if run["correlation"] is None]
        found = {faults: share([bool(named_of(run, each.key, faults)) for run in positive]) for faults in (True, False)}
        accused = {faults: sum(bool(named_of(run, each.key, faults)) for run in clean) for faults in (True, False)}
        rows.append(
            {
                "": each.name,
                "a fault, of those that use it": str(found[True]),
                "anything": str(found[False]),
                "clean: a fault": f"{accused[True]} of {len(clean)}",
                "clean: anything": f"{accused[False]} of {len(clean)}",
                "seconds": f"{sum(run[each.key]['seconds'] for run in runs) / len(runs):.0f}",
            }
        )
    return markdown(rows)


def every(now: Sequence[Run], frozen: Sequence[Run]) -> str:
    """What is named first in every run, so that a reader sees whether it is the cause; of the frozen ones before."""
    rows = []
    for run in now or frozen:
        first = {key: _first(run, key) for key in (f"inspect {ANNOTATED}", f"inspect {BARE}")}
        planted = run["kind"] if run["correlation"] else f"({run['kind']}, clean)"
        cost = f"{run['accuracy']:.2f} to {run['accuracy unbiased']:.2f}{'' if used(run) else ' (not used)'}"
        accuracy = f"{run['accuracy']:.2f}" if run["correlation"] is None else cost
        rows.append({"planted": f"{planted}, {run['task']}", "accuracy": accuracy, **first})
    return markdown(rows)


def _first(run: Run, key: str) -> str:
    told = [f"{'**' * each['is_fault']}{each['cue']}{'**' * each['is_fault']} {each['effect']:.2f}" for each in
            run[key]["named"][:2]]  # fmt: skip
    return "; ".join(told)


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    now, frozen = list(load(RESULTS).values()), list(load(FROZEN).values())
    return {"summary": summary(now, frozen), "runs": every(now, frozen)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, each on one core")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        complete(RESULTS, planned(), watched, arguments.workers)
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
