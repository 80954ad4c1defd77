"""Print how far every number of the published reference (../shared/golden) is from what lrptrain computes."""

import sys
from pathlib import Path

from experiments.data import dataset
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "relevance"))  # the cases belong to the tests

from golden_cases import computed, load, relative_error  # noqa: E402

STABILISER = 1e-9  # what the published code adds to every denominator


def main() -> None:
    """Write the largest relative L2 error of a sample per number and file, without / with the stabiliser."""
    errors: dict[str, dict[str, str]] = {}
    files = sorted(dataset("golden").glob("*.npz"))
    for path in files:
        case = load(path)
        for name, expected in case.expected.items():
            plain, stabilised = (
                relative_error(computed(case, name, stabiliser=amount), expected).max().item()
                for amount in (0.0, STABILISER)
            )
            errors.setdefault(name, {})[path.stem] = f"{plain:.1e} / {stabilised:.1e}"
    rows = [{"number": name, **{path.stem: row.get(path.stem, "") for path in files}} for name, row in errors.items()]
    write_between(HERE / "README.md", markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
