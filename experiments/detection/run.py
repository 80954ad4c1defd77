"""How good are the monitor's flags? See README.md.

    .venv/bin/python -m experiments.detection.run calibrate
    .venv/bin/python -m experiments.detection.run test
    .venv/bin/python -m experiments.detection.run again

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import json
from pathlib import Path

from experiments.detection import report
from experiments.detection.cases import AGAIN, CALIBRATION, TEST, Case
from experiments.detection.scoring import Cuts, chosen_cuts
from experiments.detection.watch import CONSTANTS, train, train_by_default
from experiments.parallel import Run, complete, load
from experiments.table import write_between

HERE = Path(__file__).resolve().parent

CALIBRATED, TESTED, REPEATED = (HERE / "results" / f"{name}.jsonl" for name in ("calibration", "test", "again"))
FROZEN = HERE / "results" / "frozen.json"


def saved(path: Path, cases: list[Case]) -> list[Run]:
    """The runs of these cases, in their order.

    Raises:
        SystemExit: If some are missing.
    """
    found = load(path)
    if missing := [case.key for case in cases if case.key not in found]:
        raise SystemExit(
            f"{len(missing)} runs of {path.name} are missing, such as {missing[0]!r}: start the command again"
        )
    return [found[case.key] for case in cases]


def calibrate(workers: int) -> None:
    """Run what thresholds are chosen on, and freeze them with the monitors' constants.

    Raises:
        SystemExit: If there are test runs already.
    """
    complete(CALIBRATED, CALIBRATION, train, workers)
    runs = saved(CALIBRATED, CALIBRATION)
    if load(TESTED):
        raise SystemExit(f"thresholds stay as they are: {TESTED.name} has runs already")
    frozen = {"constants": CONSTANTS, "cuts": chosen_cuts(runs)}
    FROZEN.write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")


def cuts() -> Cuts:
    """The frozen ones.

    Raises:
        SystemExit: If there are none, or they belong to monitors with other constants.
    """
    if not FROZEN.exists():
        raise SystemExit("no thresholds: run.py calibrate comes first")
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    if frozen["constants"] != CONSTANTS:
        raise SystemExit(f"the monitors' constants {CONSTANTS} are not those that were frozen: {frozen['constants']}")
    return frozen["cuts"]


def test(workers: int) -> None:
    """Run what is tested."""
    cuts()
    complete(TESTED, TEST, train, workers)


def again(workers: int) -> None:
    """Run what is tested again, under the monitor as it is by default, which knows no threshold of these runs."""
    complete(REPEATED, AGAIN, train_by_default, workers)


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    written = {}
    for name, path, cases in (("calibration", CALIBRATED, CALIBRATION), ("test", TESTED, TEST)):
        found = load(path)
        runs = [found[case.key] for case in cases if case.key in found]
        if len(runs) == len(cases) and FROZEN.exists():
            written |= {f"{name}: {table}": text for table, text in report.tables(runs, cuts()).items()}
    repeated = load(REPEATED)
    if runs := [repeated[case.key] for case in AGAIN if case.key in repeated]:
        written |= {f"again: {table}": text for table, text in report.tables_by_default(runs).items()}
    return written


def tables() -> None:
    """Write what is saved into README.md."""
    for mark, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {mark} -->", f"<!-- end of {mark} -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = {"calibrate": calibrate, "test": test, "again": again}
    parser.add_argument("step", choices=[*steps, "tables"])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.step in steps:
        steps[arguments.step](arguments.workers)
    tables()


if __name__ == "__main__":
    main()
