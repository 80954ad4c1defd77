"""Whether a run's findings pass: what `lrptrain check` does, as a function."""

from dataclasses import dataclass
from pathlib import Path

from lrptrain.findings import Finding, announce, unfold, worst_severity
from lrptrain.findings.facts import count_states
from lrptrain.loggers import read_events, read_findings
from lrptrain.monitor.gate import FAIL_AFTER, is_lasting
from lrptrain.trainers.checks import check_counts


@dataclass(frozen=True)
class CheckResult:
    """What a check says of a run; true where the run passes.

    Attributes:
        run: Folder of the run.
        passed: Whether no finding is graver than allowed.
        severity: Severity of the gravest finding, 0..1.
        max_severity: The severity that was allowed.
        fail_after: The evaluations in a row in which a finding had to be confirmed to count.
        epoch: Epoch of the last evaluation.
        findings: The run's findings.
    """

    run: Path
    passed: bool
    severity: float
    max_severity: float
    fail_after: int
    epoch: int
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        """Return whether the run passes."""
        return self.passed

    def __str__(self) -> str:
        """Return a paragraph per finding, and a line that says whether the run passes."""
        times = f" in {self.fail_after} evaluations in a row" if self.fail_after > 1 else ""
        compared = f"severity {self.severity:.2f}{times}, allowed {self.max_severity:.2f}"
        verdict = (
            f"{'passed' if self.passed else 'failed'}: {count_states(self.findings)} at epoch {self.epoch}; {compared}"
        )
        return "\n".join([*announce(self.findings, self.run), verdict])


def check(run: Path | str, max_severity: float = 0.0, fail_after: int = FAIL_AFTER) -> CheckResult:
    """Judge a run's findings: a gate for continuous integration.

    The severity of a confirmed finding is how far the intervention moved the prediction beyond its control, 0..1;
    that of all others is 0. A single evaluation confirms something wrongly now and then: what was confirmed in the last
    `fail_after` evaluations in a row counts, or in all of them where the run has fewer.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_severity: The gravest finding may have this severity.
        fail_after: The evaluations in a row, at least 1, in which a finding has to be confirmed.

    Raises:
        FileNotFoundError: If there is no such run, or it has no evaluation yet.
        ValueError: If several runs are meant, max_severity is not in 0..1, or fail_after below 1.
    """
    if not 0 <= max_severity <= 1:
        raise ValueError(f"max_severity must lie in 0..1, not {max_severity}")
    check_counts(fail_after=fail_after)
    folder = run_of(Path(run))
    events = read_events(folder)
    findings = read_findings(folder)
    required = min(fail_after, len(events))
    severity = worst_severity(each for each in unfold(findings) if is_lasting(each, ("confirmed",), required))
    epoch = events[-1]["epoch"]
    return CheckResult(folder, severity <= max_severity, severity, max_severity, required, epoch, tuple(findings))


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
