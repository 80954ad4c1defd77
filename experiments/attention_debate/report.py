"""What is kept of an audit, and the tables over seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.intervals import compared
from experiments.parallel import Run
from experiments.table import markdown, mean_interval
from lrptrain.auditing import AuditResult, registered_tests
from lrptrain.auditing.checks.adversary import parse_adversary
from lrptrain.auditing.distances import DIFFERENT_MAP_JSD, SAME_OUTPUT_TVD

ATTENTION = "raw_attention"
GAIN = "gain over random ↑"
COLUMNS = {test.column.head: (test.name, test.column.values) for test in registered_tests() if test.column}


def numbers(result: AuditResult) -> dict[str, Any]:
    """Means over samples of everything that was measured."""
    uniform, shuffled, searched = (result.values(test) for test in ("uniform", "permutation", "adversarial"))
    seeds = [unit.values for unit in result.units if unit.test == "seeds" and unit.values]
    return {
        "accuracy": mean(uniform["right"]),
        "accuracy, uniform": mean(uniform["right_uniform"]),
        "JSD, uniform": mean(uniform["jsd"]),
        "TVD, shuffled": mean(shuffled["median_tvd"]),
        "largest weight": mean(shuffled["largest_weight"]),
        "JSD, searched": mean(searched["jsd"]),
        "share, searched": float(np.mean(np.array(searched["jsd"]) > DIFFERENT_MAP_JSD)),
        "TVD, seeds": mean([mean(values["tvd"]) for values in seeds]),
        "frozen": {
            unit.unit: mean(unit.values["right"]) for unit in result.units if unit.test == "frozen" and unit.values
        },
        "methods": {each.method: _method(result, each.method, each.faithful, seeds) for each in result.verdicts},
        "adversaries": _adversaries(result),
        "problems": sorted({f"{unit.title}: {unit.problem}" for unit in result.units if unit.problem}),
    }


def _method(result: AuditResult, method: str, faithful: str, seeds: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"faithful": faithful}
    for head, (test, value) in COLUMNS.items():
        if values := result.values(test, method):
            found[head] = mean(values[value])
    for test in ("leave_one_out", "gradient"):
        if values := result.values(test, method):
            found[f"share, {test}"] = float(np.mean(np.array(values["p_value"]) <= 0.05))
    if seeds and method in seeds[0]["jsd"]:
        found["JSD, seeds"] = mean([mean(values["jsd"][method]) for values in seeds])
    return found


def _adversaries(result: AuditResult) -> list[dict[str, Any]]:
    found = []
    for unit in result.units:
        if unit.test == "adversary" and unit.values:
            method, strength = parse_adversary(unit.unit)
            values = {name: mean(unit.values[name]) for name in ("tvd", "jsd", "right")}
            found.append({"method": method, "strength": strength, **values})
    return found


def mean(values: Sequence[float]) -> float:
    """Over those that are known."""
    return round(float(np.nanmean(values)), 5)


def tables(runs: Sequence[Run]) -> str:
    """All tables of the corpora that are there."""
    parts = []
    for corpus in dict.fromkeys(run["corpus"] for run in runs):
        own = [run for run in runs if run["corpus"] == corpus]
        parts += [
            f"## {corpus.capitalize()}: {len(own)} audited models",
            "**Attention**, mean over models ± 95 % interval over models.",
            markdown(attention_rows(own)),
            "**Adversaries**: models trained for the same answers and other maps.",
            markdown(adversary_rows(own)),
            "**All methods**, ordered by the gain over random orders; faithful: verdicts yes / weakly / no.",
            markdown(method_rows(own)),
        ]
    return "\n\n".join(parts)


ATTENTION_ROWS: dict[str, Callable[[Run], float]] = {
    "accuracy on the audited texts": lambda run: run["accuracy"],
    "accuracy with uniform attention in every block": lambda run: run["accuracy, uniform"],
    "JSD of attention from uniform": lambda run: run["JSD, uniform"],
    "tau, attention and gradient": lambda run: run["methods"][ATTENTION]["tau, gradient"],
    "… share of texts with p ≤ .05": lambda run: run["methods"][ATTENTION]["share, gradient"],
    "tau, attention and leave-one-out": lambda run: run["methods"][ATTENTION]["tau, leave-one-out ↑"],
    "…  share of texts with p ≤ .05": lambda run: run["methods"][ATTENTION]["share, leave_one_out"],
    "tau, gradient and leave-one-out": lambda run: run["between references"]["tau"],
    "…   share of texts with p ≤ .05": lambda run: run["between references"]["share"],
    "median TVD of the output, attention shuffled": lambda run: run["TVD, shuffled"],
    "JSD of adversarial attention (search), at most 0.69": lambda run: run["JSD, searched"],
    f"share of texts with JSD above {DIFFERENT_MAP_JSD} by search": lambda run: run["share, searched"],
    "TVD of the outputs, other seeds": lambda run: run["TVD, seeds"],
    "JSD of attention, other seeds": lambda run: run["methods"][ATTENTION]["JSD, seeds"],
    "token-wise model: accuracy with uniform weights": lambda run: run["frozen"]["uniform"],
    "token-wise model: with learned weights": lambda run: run["frozen"]["learned"],
    "token-wise model: with the model's attention": lambda run: run["frozen"][ATTENTION],
}


def attention_rows(runs: Sequence[Run]) -> list[dict[str, str]]:
    """A row per measure."""
    return [{"measure": name, "value": shown([read(run) for run in runs])} for name, read in ATTENTION_ROWS.items()]


def adversary_rows(runs: Sequence[Run]) -> list[dict[str, str]]:
    """A row per method and strength."""
    kinds = dict.fromkeys((each["method"], each["strength"]) for run in runs for each in run["adversaries"])
    rows = []
    for kind in kinds:
        own = [each for run in runs for each in run["adversaries"] if (each["method"], each["strength"]) == kind]
        rows.append(
            {
                "maps of": f"`{kind[0]}`",
                "strength": f"{kind[1]:g}",
                "TVD of the outputs": shown([each["tvd"] for each in own]),
                "JSD of the maps": shown([each["jsd"] for each in own]),
                f"models with TVD ≤ {SAME_OUTPUT_TVD}": same_output(own),
                "token-wise model with its maps": shown([each["right"] for each in own]),
            }
        )
    return rows


def same_output(adversaries: Sequence[Any]) -> str:
    """How many adversaries have the model's output."""
    return f"{sum(each['tvd'] <= SAME_OUTPUT_TVD for each in adversaries)} of {len(adversaries)}"


def method_rows(runs: Sequence[Run]) -> list[dict[str, str]]:
    """A row per method."""
    gains = {method: [[run["methods"][method][GAIN]] for run in runs] for method in by_gain(runs)}
    differences = compared(gains, ATTENTION, same_samples=False, digits=2)
    rows = []
    for method in gains:
        own = [run["methods"][method] for run in runs]
        verdicts = [sum(each["faithful"] == level for each in own) for level in ("yes", "weakly", "no")]
        row = {"method": f"`{method}`", "faithful": " / ".join(map(str, verdicts))}
        row["gain minus attention's"] = differences[method]
        row |= {head: shown([each[head] for each in own if head in each]) for head in (*COLUMNS, "JSD, seeds")}
        rows.append(row)
    return rows


def by_gain(runs: Sequence[Run]) -> list[str]:
    """The methods that were measured, the best first."""
    gains = {
        method: np.mean([run["methods"][method][GAIN] for run in runs])
        for method, values in runs[0]["methods"].items()
        if GAIN in values
    }
    return sorted(gains, key=lambda method: -gains[method])


def shown(values: Sequence[float]) -> str:
    """Mean and half width of its interval."""
    if not values:
        return "-"
    return "{:.2f} ± {:.2f}".format(*mean_interval(values)) if len(values) > 1 else f"{values[0]:.2f}"
