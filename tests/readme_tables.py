"""README's tables of models and methods, generated from what the tests run on. `make tables` writes them."""

import sys
from pathlib import Path

from lrptrain.relevance.registry import get_method, methods

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "relevance"))


def method_table() -> str:
    """One row per registered method."""
    head = ("method", "class-specific", "signed", "reaches the input", "options", "source")
    rows = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for name in methods():
        method = get_method(name, {})
        flags = " | ".join(
            "yes" if flag else "no" for flag in (method.class_specific, method.signed, method.reaches_input)
        )
        options = ", ".join(f"`{option}={default!r}`" for option, default in method.options.items())
        rows.append(f"| `{name}` | {flags} | {options} | {method.source} |")
    return "\n".join(rows)


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
