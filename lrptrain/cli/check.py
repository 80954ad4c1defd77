"""Let a run's findings pass or fail, from the command line: a gate for continuous integration."""

import sys
from pathlib import Path

from lrptrain.findings import Finding, announce, worst_severity
from lrptrain.loggers import read_events, read_findings


def check(run: str, max_severity: float = 0.0) -> None:
    """Exit with 1 if a finding of a run is graver than allowed.

    The severity of a confirmed finding is how far the intervention moved the prediction beyond its control, 0..1;
    that of all others is 0.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_severity: The gravest finding may have this severity.

    Raises:
        FileNotFoundError: If there is no such run, or it has no evaluation yet.
        ValueError: If several runs are meant, or max_severity is not in 0..1.
    """
    if not 0 <= max_severity <= 1:
        raise ValueError(f"max_severity must lie in 0..1, not {max_severity}")
    folder = run_of(Path(run))
    events = read_events(folder)
    findings = read_findings(folder)
    severity = worst_severity(findings)
    for line in announce(findings, most=len(findings)):
        print(line)
    passed = severity <= max_severity
    compared = f"severity {severity:.2f}, allowed {max_severity:.2f}"
    print(f"{'passed' if passed else 'failed'}: {_counted(findings)} at epoch {events[-1]['epoch']}; {compared}")
    if not passed:
        sys.exit(1)


def run_of(folder: Path) -> Path:
    """The folder of a run's record: this one, or the only one below it.

    Raises:
        FileNotFoundError: If there is none with an evaluation.
        ValueError: If there are several.
    """
    runs = sorted(path.parent for path in folder.rglob("events.jsonl")) if folder.is_dir() else []
    # A run that was stopped before its first evaluation has a file without a complete line.
    runs = [path for path in runs if read_events(path)]
    if not runs:
        raise FileNotFoundError(f"no monitored run with an evaluation in {str(folder)!r}: there is nothing to judge")
    if len(runs) > 1 and folder not in runs:
        raise ValueError(f"{str(folder)!r} holds {len(runs)} runs: name one of {[str(path) for path in runs]}")
    return folder if folder in runs else runs[0]


def _counted(findings: list[Finding]) -> str:
    states = [finding.state for finding in findings]
    return ", ".join(f"{states.count(state)} {state}" for state in ("confirmed", "suspected", "refuted"))
