"""Checks of the monitor's arguments."""

from collections.abc import Hashable, Sequence

from lrptrain.cues.cue import Cue
from lrptrain.monitor.evaluator import TARGETS
from lrptrain.monitor.gate import FORBIDDEN
from lrptrain.monitor.summary import logged_metrics
from lrptrain.trainers.checks import check_shares


def check_targets(targets: Sequence[str]) -> None:
    """Reject classes to explain that the monitor does not know.

    Raises:
        ValueError: With what they may be.
    """
    if not isinstance(targets, Sequence) or isinstance(targets, str) or not targets or {*targets} - {*TARGETS}:
        raise ValueError(f"targets must be a list of some of {TARGETS}, not {targets!r}")


def check_judge(min_effect: float, confidence: float, fail_on: str | None) -> None:
    """Reject arguments of the tests that the monitor does not know.

    Raises:
        ValueError: With the argument and what it may be.
    """
    check_shares(min_effect=min_effect, confidence=confidence)
    if fail_on not in FORBIDDEN:
        raise ValueError(f"fail_on must be 'relies', 'not sure' or None, not {fail_on!r}")


def check_cues(cues: Sequence[Cue] | None, fail_on: str | None) -> None:
    """Reject cues that cannot be tested, and a gate that none could close.

    Raises:
        ValueError: With the argument and what it may be.
    """
    if cues is not None and not all(isinstance(each, Cue) and isinstance(each, Hashable) for each in cues):
        raise ValueError("cues must be frozen dataclasses, as finding.cue.declared('evidence') is, or None for none")
    if fail_on is not None and cues is None:
        raise ValueError(f"fail_on={fail_on!r} needs tests, and cues=None makes none")


def check_names(names: Sequence[str | None]) -> None:
    """Reject two monitors of one name, which would log under the same keys.

    Args:
        names: The names of all monitors of a trainer; None for one without a name.

    Raises:
        ValueError: If a name occurs twice, with the argument that tells the monitors apart; or if the keys of one
            monitor would lie in a folder that has the name of another one's value.
    """
    if len(set(names)) < len(names):
        raise ValueError(
            f"several RelevanceMonitors with the names {names} would log the same keys: give each a "
            "run=lrptrain.Run(name=...)"
        )
    values = {key.partition("/")[0] for metric in logged_metrics() for key in metric.keys}
    folders = [name.split("/") if name else [] for name in names]
    for name, folder in zip(names, folders, strict=True):
        for other in folders:
            if len(folder) > len(other) and folder[: len(other)] == other and folder[len(other)] in values:
                raise ValueError(
                    f"name={name!r} is what another RelevanceMonitor logs a value as, and loggers that keep files "
                    "could not have both: give it another name"
                )
