"""Print how far every number of the published reference (../shared/golden) is from what lrptrain computes."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "relevance"))

from golden_cases import computed, load, relative_error  # noqa: E402


def main() -> None:
    print("| file | number | largest relative L2 error of a sample |\n| --- | --- | --- |")
    for path in sorted((ROOT.parent / "shared" / "golden").glob("*.npz")):
        case = load(path)
        for name, expected in case.expected.items():
            print(f"| {path.stem} | {name} | {relative_error(computed(case, name), expected).max():.1e} |")


if __name__ == "__main__":
    main()
