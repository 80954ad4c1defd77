"""Whether a run's findings pass: what `lrptrain check` does, as a function."""

from dataclasses import dataclass
from pathlib import Path

from lrptrain.findings import Finding, announce, worst_severity
from lrptrain.findings.facts import count_states
from lrptrain.loggers import read_events, read_findings


@dataclass(frozen=True)
class CheckResult:
    """What a check says of a run; true where the run passes.

    Attributes:
        run: Folder of the run.
        passed: Whether no finding is graver than allowed.
        severity: Severity of the gravest finding, 0..1.
        max_severity: The severity that was allowed.
        epoch: Epoch of the last evaluation.
        findings: The run's findings.
    """

    run: Path
    passed: bool
    severity: float
    max_severity: float
    epoch: int
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        """Return whether the run passes."""
        return self.passed

    def __str__(self) -> str:
        """Return a paragraph per finding, and a line that says whether the run passes."""
        compared = f"severity {self.severity:.2f}, allowed {self.max_severity:.2f}"
        verdict = (
            f"{'passed' if self.passed else 'failed'}: {count_states(self.findings)} at epoch {self.epoch}; {compared}"
        )
        return "\n".join([*announce(self.findings, self.run), verdict])


def check(run: Path | str, max_severity: float = 0.0) -> CheckResult:
    """Judge a run's findings: a gate for continuous integration.

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
    epoch = read_events(folder)[-1]["epoch"]
    findings = read_findings(folder)
    severity = worst_severity(findings)
    return CheckResult(folder, severity <= max_severity, severity, max_severity, epoch, tuple(findings))


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
