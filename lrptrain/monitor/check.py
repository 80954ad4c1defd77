"""Whether a run's findings pass: what `lrptrain check` does, as a function."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrptrain.findings import Finding, announce, reliance
from lrptrain.findings.sentences import counted, listed, points, sentences
from lrptrain.loggers.timeline import (
    EVENTS,
    MOST_ENTRIES,
    Judged,
    UnreadableRunError,
    could_tell,
    moment_of,
    read_for_judgement,
)
from lrptrain.monitor.run import SETTINGS, is_numbered, read_settings
from lrptrain.trainers.checks import check_counts

Verdict = Literal["passed", "failed", "inconclusive"]


@dataclass(frozen=True)
class CheckResult:
    """What a check says of a run; true where the run passes.

    Attributes:
        verdict: `"failed"` if the model relies on a shortcut more than allowed; `"inconclusive"` if the last evaluation
            is, or a cue needs your review; else `"passed"`.
        reason: Why it is inconclusive, in a sentence; "" else.
        reliance: The lower bound of the largest effect among shortcuts, 0..1.
    """

    run: Path
    verdict: Verdict
    reason: str
    reliance: float
    max_reliance: float
    fail_after: int
    epoch: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether enough was tested, and no fault is graver than allowed or something left for a person to judge."""
        return self.verdict == "passed"

    def __bool__(self) -> bool:
        """Return whether the run passes."""
        return self.passed

    def __str__(self) -> str:
        """Return a paragraph per finding, and a line that says whether the run passes."""
        times = f" in {self.fail_after} evaluations in a row" if self.fail_after > 1 else ""
        compared = f"reliance {self.reliance:.2f}{times}, allowed {self.max_reliance:.2f}"
        reason = f"{self.reason} " if self.reason else ""
        faults = counted(sum(each.is_fault for each in self.findings), "shortcut")
        verdict = f"{self.verdict}: {reason}{faults} at epoch {self.epoch}; {compared}"
        return "\n".join([*announce(self.findings, self.run), verdict])


def check(run: Path | str, max_reliance: float = 0.0, fail_after: int = 2) -> CheckResult:
    """Judge a run's findings: a gate for continuous integration.

    A run fails if the model relies on a shortcut in the last `fail_after` evaluations, or in that of the kept
    checkpoint. It passes only if the kept checkpoint was tested and nothing was found. Otherwise it is "inconclusive":
    training has not ended, a test failed or was inconclusive, the model is no better than guessing, or a cue needs your
    review.

    Examples:
        >>> import torch, lrptrain
        >>> data = [(torch.rand(32, 1, 8, 8), torch.arange(32) % 2)]
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> with lrptrain.Monitor(model, data, "runs", run=lrptrain.Run(run_name="checked")) as monitor:
        ...     _ = monitor.evaluate(epoch=0)
        >>> lrptrain.check("runs/relevance/checked").verdict  # an untrained model is no better than guessing
        'inconclusive'

    Args:
        run: Folder of a monitored run (with events.jsonl), or one that holds a single such folder.
        max_reliance: How much the model may rely on a shortcut: the lower bound of its effect, in [0, 1].
        fail_after: The evaluations in a row, at least 1, in which it has to exceed that.

    Raises:
        FileNotFoundError: If there is no such run, or it has no evaluation yet.
        ValueError: If several runs are meant, or a newer one of the same name is there, max_reliance is not in 0..1, or
            fail_after below 1.
        UnreadableRunError: If something of the record cannot be read.
    """
    if not 0 <= max_reliance <= 1:
        raise ValueError(f"max_reliance must lie in 0..1, not {max_reliance}")
    check_counts(fail_after=fail_after)
    folder = run_of(Path(run))
    judged = _read(folder)
    assert judged is not None
    required = _required(judged, fail_after)
    if judged.cut and required > MOST_ENTRIES:
        raise UnreadableRunError(f"the history of {judged.cut[0]!r} is not in the lines before")
    most = reliance([each for each in judged.findings if judged.times_relied(each) >= required])
    reason = "" if most > max_reliance else _doubt(judged, max_reliance) or _unkept(folder, judged)
    verdict: Verdict = "failed" if most > max_reliance else "inconclusive" if reason else "passed"
    return CheckResult(folder, verdict, reason, most, max_reliance, required, judged.last["epoch"], judged.findings)


def run_of(folder: Path) -> Path:
    """The folder of a run's record: this one, or the only one below it; several are a `ValueError`."""
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
    run = folder if folder in runs else runs[0]
    if (newer := _newer_of_its_name(run)) is not None:
        raise ValueError(
            f"{str(newer)!r} is a newer run of the same name, as its folder was there already: judge that one, or move "
            "one of them away"
        )
    return run


def _newer_of_its_name(run: Path) -> Path | None:
    """Return the newest run that was asked for under the name of another and got a number, if it is the newer one."""
    own = run.resolve()
    others = [each for each in own.parent.iterdir() if each != own and is_numbered(each.name, own.name)]
    # A name with a number may also be one that was asked for, as of ours and ours-2: the record says which.
    others = [each for each in others if each.is_dir() and read_settings(each).get("name", own.name) == own.name]
    newest = max(others, key=_last_written, default=None)
    return newest if newest is not None and _last_written(newest) >= _last_written(own) else None


def _last_written(run: Path) -> float:
    # Of a run that was stopped before its first evaluation there is no more than the folder.
    files = [path for name in (EVENTS, SETTINGS) if (path := run / name).exists()]
    return max(path.stat().st_mtime_ns for path in files or [run])


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


def _required(judged: Judged, fail_after: int) -> int:
    """Return in how many evaluations in a row a fault has to be found."""
    last = judged.last
    # At its end, training evaluates the weights that it keeps: evaluations of other weights say nothing of them.
    if "weights" in last and (last["weights"]["epoch"], last["weights"]["step"]) != moment_of(last):
        return 1
    return min(fail_after, max(sum(map(could_tell, judged.events)), 1))


def _unkept(folder: Path, judged: Judged) -> str:
    """Return why the last evaluation is not known to be of the weights that training left; "" where it is."""
    settings = read_settings(folder)
    # What other programs have written, and a file that cannot be read, do not say it.
    if "ended" not in settings:
        return ""
    if settings["ended"] is not True:
        return (
            "The run has not come to its end: what it keeps is not known (monitor.close() ends one of your own loop)."
        )
    kept = settings.get("kept")
    if not isinstance(kept, dict) or (kept.get("epoch"), kept.get("step")) != moment_of(judged.last):
        return "The last evaluation is not of the weights that training left, or one that followed it failed."
    if judged.id and kept.get("id") != judged.id:
        return "The evaluation of the weights that training left is not in the record any more."
    return ""


def _doubt(judged: Judged, max_reliance: float) -> str:
    """Return why nobody can say whether a run without a lasting fault passes, in a sentence; "" where it does."""
    power: dict[str, Any] = judged.last.get("power", {})
    if power.get("tells") is False:
        return str(power["text"])
    if power.get("doubt"):
        return str(power["doubt"])
    doubts = [each.name for each in judged.findings if each.role == "shortcut" and each.verdict == "inconclusive"]
    if doubts:
        return f"More samples decide whether the model relies on {listed(doubts)} (max_samples=128)."
    for finding in sorted(judged.findings, key=lambda each: -each.interval[0]):
        if finding.needs_review and not finding.is_annotated and finding.interval[0] > max_reliance:
            return f"{sentences(finding).verdict.rstrip('.')}, by {points(finding.effect)} points."
    if not power and not any(each.is_fault for each in judged.findings):
        return "Nothing was tested: the record does not say by what."
    return ""
