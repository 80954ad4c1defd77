"""README's tables of models and methods, generated from what the tests run on. `make tables` writes them."""

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
    """Time over one forward and backward pass of ViT-S and of BERT-base, batch 8, or 1 where 8 took too long."""
    shown = []
    for model in ("ViT-S/16, 224 px", "BERT-base, 128 tokens"):
        ratios = [cells.get(f"{model} | 12 | {batch} | {name}", {}).get("time") for batch in (8, 1)]
        found = next((ratio for ratio in ratios if ratio is not None), None)
        shown.append("-" if found is None else f"{found:.1f}" if found < 10 else f"{found:.0f}")
    return " / ".join(shown)


def tables() -> dict[str, str]:
    """Every generated table by the name of its marks in README.md."""
    from model_zoo import table

    return {"models": table(), "methods": method_table()}


def filled(text: str) -> str:
    """README with its tables as they should be."""
    for name, table in tables().items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
