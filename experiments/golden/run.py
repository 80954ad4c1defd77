"""How far is every number of the published reference (../shared/golden) from what lrptrain computes? See README.md.

    .venv/bin/python -m experiments.golden.run

Saves the errors in `results/`, and writes the table into this folder's README.md.
"""

import sys
from pathlib import Path

from experiments.command import no_options
from experiments.data import dataset
from experiments.records import save
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "errors.json"
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "relevance"))  # the cases belong to the tests

from golden_cases import computed, load, relative_error  # noqa: E402

STABILISER = 1e-9  # what the published code adds to every denominator


def table(errors: dict[str, dict[str, list[float]]]) -> str:
    """A row per number, a column per file: the error without and with the stabiliser."""
    files = sorted({file for row in errors.values() for file in row})
    rows = [
        {"number": name, **{file: " / ".join(f"{error:.1e}" for error in row.get(file, ())) for file in files}}
        for name, row in errors.items()
    ]
    return markdown(rows)


def main() -> None:
    """Measure the largest relative L2 error of a sample per number and file, without and with the stabiliser."""
    no_options(__doc__)
    errors: dict[str, dict[str, list[float]]] = {}
    for path in sorted(dataset("golden").glob("*.npz")):
        case = load(path)
        for name, expected in case.expected.items():
            errors.setdefault(name, {})[path.stem] = [
                relative_error(computed(case, name, stabiliser=amount), expected).max().item()
                for amount in (0.0, STABILISER)
            ]
    save(RESULTS, {"errors": errors}, indent=1)
    write_between(HERE / "README.md", table(errors))
    print(table(errors))


if __name__ == "__main__":
    main()
