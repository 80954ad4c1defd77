"""Whether a run's findings pass: what `lrptrain check` does, as a function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrptrain.findings import Finding, announce, unfold, worst_severity
from lrptrain.findings.facts import count_states, gravity
from lrptrain.findings.sentences import counted, sentences
from lrptrain.findings.statistics import fewest_for_a_flag, fewest_samples
from lrptrain.findings.verdicts import LEAST_EXCHANGE
from lrptrain.loggers.timeline import EVENTS, Judged, UnreadableRunError, read_for_judgement
from lrptrain.monitor.gate import FAIL_AFTER, is_lasting
from lrptrain.monitor.run import read_settings
from lrptrain.trainers.checks import check_counts

Verdict = Literal["passed", "failed", "not sure"]


@dataclass(frozen=True)
class CheckResult:
    """What a check says of a run; true where the run passes.

    Attributes:
        run: Folder of the run.
        verdict: `"failed"` if a finding is graver than allowed; `"not sure"` if the last evaluation cannot tell, or
            found something that a person has to judge; else `"passed"`.
        reason: Why it is not sure, in a sentence; "" else.
        severity: Severity of the gravest finding, 0..1.
        max_severity: The severity that was allowed.
        fail_after: The evaluations in a row in which a finding had to be confirmed to count.
        epoch: Epoch of the last evaluation.
        findings: The run's findings.
    """

    run: Path
    verdict: Verdict
    reason: str
    severity: float
    max_severity: float
    fail_after: int
    epoch: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether enough was tested, and no finding is graver than allowed or left for a person to judge."""
        return self.verdict == "passed"

    def __bool__(self) -> bool:
        """Return whether the run passes."""
        return self.passed

    def __str__(self) -> str:
        """Return a paragraph per finding, and a line that says whether the run passes."""
        times = f" in {self.fail_after} evaluations in a row" if self.fail_after > 1 else ""
        compared = f"severity {self.severity:.2f}{times}, allowed {self.max_severity:.2f}"
        reason = f"{self.reason} " if self.reason else ""
        verdict = f"{self.verdict}: {reason}{count_states(self.findings)} at epoch {self.epoch}; {compared}"
        return "\n".join([*announce(self.findings, self.run), verdict])


def check(run: Path | str, max_severity: float = 0.0, fail_after: int = FAIL_AFTER) -> CheckResult:
    """Judge a run's findings: a gate for continuous integration.

    The severity of a confirmed finding is how far the intervention moved the prediction beyond its control, 0..1;
    that of all others is 0. A single evaluation confirms something wrongly now and then: what was confirmed in the last
    `fail_after` evaluations in a row counts, or in all of them where the run has fewer.

    A run passes only by what was tested. It is "not sure" where no intervention was made, where the model does not tell
    classes apart, on too few samples (`fewest_samples`), and where a test moved the answers by what would confirm a
    finding, but not surely, or of something that a person has to judge.

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_severity: The gravest finding may have this severity.
        fail_after: The evaluations in a row, at least 1, in which a finding has to be confirmed.

    Raises:
        FileNotFoundError: If there is no such run, or it has no evaluation yet.
        ValueError: If several runs are meant, max_severity is not in 0..1, or fail_after below 1.
        UnreadableRunError: If something of the record cannot be read.
    """
    if not 0 <= max_severity <= 1:
        raise ValueError(f"max_severity must lie in 0..1, not {max_severity}")
    check_counts(fail_after=fail_after)
    folder = run_of(Path(run))
    judged = _read(folder)
    assert judged is not None
    required = min(fail_after, judged.count)
    lasting = [each for each in unfold(judged.findings) if is_lasting(each, ("confirmed",), required)]
    severity = worst_severity(lasting)
    reason = "" if severity > max_severity else _doubt(folder, judged, lasting, max_severity)
    verdict: Verdict = "failed" if severity > max_severity else "not sure" if reason else "passed"
    epoch = judged.event["epoch"]
    return CheckResult(folder, verdict, reason, severity, max_severity, required, epoch, judged.findings)


def run_of(folder: Path) -> Path:
    """The folder of a run's record: this one, or the only one below it.

    Raises:
        FileNotFoundError: If there is none with an evaluation.
        ValueError: If there are several.
        UnreadableRunError: If the record of the only one cannot be read.
    """
    runs = sorted(path.parent for path in folder.rglob(EVENTS)) if folder.is_dir() else []
    if len(runs) > 1:
        # A run that was stopped before its first evaluation has a file without a line. What cannot be read is no such.
        runs = [path for path in runs if not _is_empty(path)]
    if len(runs) == 1 and _read(runs[0]) is None:
        runs = []
    if not runs:
        raise FileNotFoundError(f"no monitored run with an evaluation in {str(folder)!r}: there is nothing to judge")
    if len(runs) > 1 and folder not in runs:
        raise ValueError(f"{str(folder)!r} holds {len(runs)} runs: name one of {[str(path) for path in runs]}")
    return folder if folder in runs else runs[0]


def _is_empty(folder: Path) -> bool:
    try:
        return _read(folder) is None
    except UnreadableRunError:
        return False


def _read(folder: Path) -> Judged | None:
    try:
        return read_for_judgement(folder)
    except OSError as error:
        raise UnreadableRunError(str(error)) from error


def _doubt(folder: Path, judged: Judged, lasting: Sequence[Finding], max_severity: float) -> str:
    """Return why nobody can say whether a run without a fault passes, in a sentence; "" where it does."""
    for finding in sorted(lasting, key=gravity):
        if not finding.is_fault and finding.effect > max_severity:
            return f"{sentences(finding).verdict.rstrip('.')}, by {100 * finding.effect:.0f} points."
    scalars: dict[str, Any] = judged.event["scalars"]
    if judged.event.get("power", {}).get("tells") is False:
        return str(judged.event["power"]["text"])
    ratio = _ending("/effect_ratio", scalars)
    if ratio is None:
        return "Nothing was tested: the monitor made no intervention."
    count = int(_ending("/samples", scalars) or 0)
    needed = _needed(folder, max_severity)
    if count < needed:
        return f"{counted(count, 'sample')} are too few to decide, {needed} are enough (max_samples=128, budget=None)."
    if ratio >= 1 and not any(each.state == "confirmed" for each in judged.findings):
        return judged.event.get("hints") or "A test moved the answers far enough, but not surely."
    return ""


def _needed(folder: Path, max_severity: float) -> int:
    """Return on how many samples a run can pass: as many as would have shown a shortcut, in four runs of five."""
    settings = read_settings(folder)
    names = settings.get("class_names")
    confidence = settings.get("confidence")
    # The classes, and all of them together.
    tests = 1 + (len(names) if isinstance(names, list) else 2)
    level = confidence if isinstance(confidence, float) and 0 < confidence < 1 else 0.95
    return fewest_samples(fewest_for_a_flag(tests, level), max(LEAST_EXCHANGE, max_severity))


def _ending(name: str, scalars: dict[str, Any]) -> float | None:
    """Return the scalar of that name behind a prefix, which is the user's: the one with the shortest key."""
    keys = sorted((key for key in scalars if key.endswith(name)), key=len)
    value = scalars[keys[0]] if keys else None
    return value if isinstance(value, int | float) and math.isfinite(value) else None
