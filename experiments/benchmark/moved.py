"""What does each number of the search for cues do? Each is halved and doubled, and the same models are inspected again.

    .venv/bin/python -m experiments.benchmark.moved             # trains the models once, into build/benchmark
    .venv/bin/python -m experiments.benchmark.moved --tables    # from what is saved

A row of the table is a number: in how many pairs the first name is the cause, without annotations, of how many that
learned it; and in how many models that never saw a mark something is said to be relied on. What no row moves is a
choice of time or of words alone; the docstring of a number that is measured here names this command.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.benchmark.asked import BARE, effect_of, inspected
from experiments.benchmark.cases import Case, fresh, planned
from experiments.benchmark.training import CLEAN, READS, data_of, right, trained
from experiments.parallel import load
from experiments.records import append, stamped
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "moved.jsonl"
MODELS = HERE.parents[1] / "build" / "benchmark"
FACTORS = (0.5, 2.0)
UNMOVED = "as they are"


class Number(NamedTuple):
    """A number of the product.

    Attributes:
        module: The module that states it.
        name: Its name there.
        of: Which pairs it can move: "images", "texts" or "both".
    """

    module: str
    name: str
    of: str = "both"


NUMBERS = (
    Number("lrptrain.cues.pictures", "TOLERANCE", "images"),
    Number("lrptrain.cues.pictures", "POINTS", "images"),
    Number("lrptrain.cues.mark", "EACH", "images"),
    Number("lrptrain.cues.pictures", "PLACES", "images"),
    Number("lrptrain.cues.visual.grain", "SMOOTHING", "images"),
    Number("lrptrain.cues.visual.grain", "ALL_OVER", "images"),
    Number("lrptrain.cues.visual.light", "WAVES", "images"),
    Number("lrptrain.cues.visual.framing", "DETAIL", "images"),
    Number("lrptrain.cues.phrase", "LONGEST", "texts"),
    Number("lrptrain.cues.cue", "MOST"),
    Number("lrptrain.cues.cue", "QUARTER"),
    Number("lrptrain.cues.cue", "CANDIDATES"),
    Number("lrptrain.cues.cue", "FEWEST"),
    Number("lrptrain.cues.plan", "FAULTS_WEIGH"),
    Number("lrptrain.cues.search", "ENOUGH"),
    Number("lrptrain.cues.measure", "FIRST_LOOK"),
    Number("lrptrain.cues.measure", "FEWEST_FLIPPED"),
    Number("lrptrain.batch.matters", "LEAST_EFFECT"),
    Number("lrptrain.batch.matters", "LEVEL"),
    Number("lrptrain.batch.matters", "FEWEST_SAMPLES"),
)


def pairs() -> list[Case]:
    """Every seventh pair of images and of texts that was drawn first, and every fifth of those that were drawn late."""
    images, texts = ([each for each in planned() if (each.task == "texts") == is_text] for is_text in (False, True))
    return [*images[::7], *texts[::7], *fresh()[::5]]


def models() -> Iterator[dict[str, Any]]:
    """The models of all pairs with their data: trained once, then read."""
    MODELS.mkdir(parents=True, exist_ok=True)
    for case in pairs():
        path = MODELS / f"{case.key.replace(' | ', '_')}.pt"
        if not path.exists():
            data = data_of(case)
            nets = {name: trained(case, data.train[name])[0] for name in (READS, CLEAN)}
            made = {"case": case, "nets": nets, "look": data.look}
            torch.save({**made, "shown": data.shown, "unbiased": data.unbiased, "bare": data.bare}, path)
        yield torch.load(path, weights_only=False)


def inspect_all(key: str, of: str) -> dict[str, Any]:
    """What is said of the models of all pairs, one after the other."""
    row: dict[str, Any] = {"key": key, "pairs": {}}
    for made in models():
        case: Case = made["case"]
        if of != "both" and (case.task == "texts") != (of == "texts"):
            continue
        started = time.monotonic()
        net, look = made["nets"][READS], made["look"]
        shown, unbiased = right(net, made["shown"]), right(net, made["unbiased"])
        report = inspected(net, made["shown"], case, look, BARE)
        first = next((each for each in report.findings if each.is_fault or each.needs_review), None)
        effect = 0.0 if first is None else float(first.effect)
        is_cause = first is not None and (
            effect_of(inspected(net, made["bare"], case, look, BARE, cues=[first.cue]), first.cue) <= effect / 2
        )
        clean = inspected(made["nets"][CLEAN], made["bare"], case, look, BARE)
        row["pairs"][case.key] = {
            "lost": int((shown & ~unbiased).sum()),
            "won": int((unbiased & ~shown).sum()),
            "first": "" if first is None else first.name,
            "effect": effect,
            "is_cause": is_cause,
            "clean": [each.name for each in clean.findings if each.is_fault or each.needs_review],
            "passes": report.passes,
            "seconds": time.monotonic() - started,
        }
    return row


def table() -> str:
    """A row per number, as it is and moved."""
    found = load(RESULTS)
    rows = [{"number": UNMOVED, **_counts(found, UNMOVED, "both")}]
    for number in NUMBERS:
        for factor in FACTORS:
            key = f"{number.name} x {factor:g}"
            if "pairs" in found.get(key, {}):
                value = found[key]["value"]
                rows.append(
                    {"number": f"`{number.name}` {found[key]['was']:g} -> {value:g}", **_counts(found, key, number.of)}
                )
    return markdown(rows)


def _counts(found: dict[str, Any], key: str, of: str) -> dict[str, str]:
    before = {name: each for name, each in found[UNMOVED]["pairs"].items() if name in found[key]["pairs"]}
    learned = [name for name, each in before.items() if each["lost"] - each["won"] > 20]
    now = found[key]["pairs"]
    return {
        "pairs": of,
        "cause first": f"{sum(now[name]['is_cause'] for name in learned)} of {len(learned)}",
        "before": f"{sum(before[name]['is_cause'] for name in learned)}",
        "other first names": str(sum(now[name]["first"] != before[name]["first"] for name in before)),
        "said of clean models": f"{sum(len(each['clean']) for each in now.values())}",
        "before ": f"{sum(len(each['clean']) for each in before.values())}",
        "passes": f"{_passes(now) / _passes(before):.2f}",
    }


def _passes(of: dict[str, Any]) -> float:
    return float(sum(each["passes"] for each in of.values()))


def one(name: str, factor: float) -> None:
    """Inspect all models with a number moved, which must be stated already; print the row."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    of = next((each.of for each in NUMBERS if each.name == name), "both")
    print(json.dumps(inspect_all(_key(name, factor), of)))


def _key(name: str, factor: float) -> str:
    return UNMOVED if name == UNMOVED else f"{name} x {factor:g}"


def _run(name: str, module: str, factor: float) -> dict[str, Any]:
    """Do this in a process of its own: what is imported there states the number that was moved."""
    lines = [f"from experiments.benchmark.moved import one; one({name!r}, {factor})"]
    if module:
        lines.insert(0, f"from experiments.stated import state; print(*state({module!r}, {name!r}, {factor}))")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    if done.returncode:
        return {"key": _key(name, factor), "problem": done.stderr.splitlines()[-1]}
    said = done.stdout.splitlines()
    row: dict[str, Any] = json.loads(said[-1])
    if module:
        row["was"], row["value"] = map(float, said[0].split())
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Move what is not moved yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    if not parser.parse_args(arguments).tables:
        for _ in models():
            pass
        moves = [(each.name, each.module, factor) for each in NUMBERS for factor in FACTORS]
        for name, module, factor in [(UNMOVED, "", 1.0), *moves]:
            if _key(name, factor) not in load(RESULTS):
                append(RESULTS, stamped(_run(name, module, factor)))
                print(_key(name, factor), flush=True)
    write_between(HERE / "README.md", table(), "<!-- moved -->", "<!-- end of moved -->")


if __name__ == "__main__":
    main()
