"""The generated tables of the documentation, made from what the tests run on. `make tables` writes them."""

import ast
import json
import sys
from pathlib import Path

from lrptrain.relevance.registry import get_method, methods

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "relevance"))


def method_table() -> str:
    """One row per registered method; its cost as experiments/speed measured it."""
    cells = json.loads((ROOT / "experiments" / "speed" / "results" / "cpu.json").read_text(encoding="utf-8"))
    head = ("method", "class-specific", "signed", "differentiable", "reaches the input", "cost", "options", "source")
    rows = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for name in methods():
        method = get_method(name, {})
        flags = (method.class_specific, method.signed, method.differentiable, method.reaches_input)
        answers = " | ".join("yes" if flag else "no" for flag in flags)
        options = ", ".join(f"`{option}={default!r}`" for option, default in method.options.items())
        rows.append(f"| `{name}` | {answers} | {cost(cells, name)} | {options} | {method.source} |")
    return "\n".join(rows)


def cost(cells: dict, name: str) -> str:
    """Time over one forward and backward pass of ViT-S and of BERT-base, batch 8, or 1 where 8 took too long.

    A record that was made with other options than today's defaults says with which: so does the cell.
    """
    columns = []
    options = set()
    for model in ("ViT-S/16, 224 px", "BERT-base, 128 tokens"):
        records = [cells.get(f"{model} | 12 | {batch} | {name}", {}) for batch in (8, 1)]
        record: dict = next((record for record in records if "time" in record), {})
        ratio = record.get("time")
        columns.append("-" if ratio is None else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}")
        options.add(record.get("measured as", name).removeprefix(name).strip(" ()"))
    costs = " / ".join(columns)
    (other,) = options  # both models were measured alike
    return f"{costs} with `{other}`" if other else costs


def model_table() -> str:
    """One row per kind of model that the tests run, with the number of methods that serve it and what is refused."""
    from model_zoo import KINDS
    from test_models import METHODS, SERVED

    rows = ["| library | model | input | methods | refused, with an error |", "| --- | --- | --- | --- | --- |"]
    for name, kind in KINDS.items():
        served = {method for served_kind, method in SERVED if served_kind == name}
        refused = [f"`{method}`" for method in METHODS if method not in served]
        without = "all that need maps over the whole sequence" if not kind.attention else ", ".join(refused)
        source = "image" if kind.size else "text, with padding"
        rows.append(f"| {kind.library} | {kind.title} | {source} | {len(served)} of {len(METHODS)} | {without} |")
    return "\n".join(rows)


TRAINERS = {
    "Lightning": ("lightning", "Lightning"),
    "transformers": ("transformers",),
    "a loop of your own": ("loop", "a step", "a line"),
    "Accelerate": ("accelerate",),
    "Fabric": ("fabric", "Fabric"),
}
"""The trainers by their titles in the documentation, with their names in the tests of the monitor and the guidance."""


RUNS = ("monitored", "alone", "disturbed", "no_time", "paired")
"""Fixtures of the behaviours: what several tests look at."""


def behaviour_table() -> str:
    """One row per behaviour that is tested, the same test for every trainer."""
    suites = {
        "monitor": ("tests/trainers/behaviours/test_behaviours.py", {"train", "name", *RUNS}, "by_"),
        "guidance": ("tests/callbacks/test_guidance_loops.py", {"trained", "loop"}, ""),
    }
    rows = [f"| | behaviour | {' | '.join(TRAINERS)} |", "| --- |" + " --- |" * (1 + len(TRAINERS))]
    for suite, (file, fixtures, prefix) in suites.items():
        for test in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            if not fixtures & {argument.arg for argument in test.args.args}:
                continue
            only = narrowed(test, fixtures, prefix)
            cells = ["yes" if only is None or set(names) & only else "" for names in TRAINERS.values()]
            rows.append(f"| {suite} | {test.name.removeprefix('test_').replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(rows)


def narrowed(test: ast.FunctionDef, fixtures: set[str], prefix: str) -> set[str] | None:
    """The trainers that a test names for itself; None where it runs with all of its suite."""
    for decorator in test.decorator_list:
        parameters = decorator.args if isinstance(decorator, ast.Call) else []
        if len(parameters) > 1 and isinstance(parameters[0], ast.Constant) and parameters[0].value in fixtures:
            return {name.id.removeprefix(prefix) for name in ast.walk(parameters[1]) if isinstance(name, ast.Name)}
    return None


# By file, the generated tables that it holds between `<!-- NAME -->` and `<!-- end of NAME -->`.
TABLES = {
    "docs/reference/methods.md": {"methods": method_table},
    "docs/reference/support.md": {"models": model_table, "behaviours": behaviour_table},
}


def filled(file: str) -> str:
    """The text of a file with its tables as they should be."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for name, table in TABLES[file].items():
        start = f"<!-- {name} -->"
        end = f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{table()}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for path in TABLES:
        (ROOT / path).write_text(filled(path), encoding="utf-8")
