"""When a finding ends a run."""

from collections.abc import Collection, Sequence

from lrptrain.findings import Finding, unfold

_FORBIDDEN_STATES: dict[str | None, tuple[str, ...]] = {
    None: (),
    "suspected": ("suspected", "confirmed"),
    "confirmed": ("confirmed",),
}


FAIL_AFTER = 2
"""A finding ends a run when it stands in so many evaluations in a row: a single one is wrong now and then."""


class FindingError(RuntimeError):
    """Training has ended because of a finding that `fail_on` forbids."""


def gravest_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> Finding | None:
    """Return the gravest finding that `fail_on` forbids, or None. What a person has to judge is not forbidden.

    Args:
        findings: The facts of the last evaluation.
        fail_on: What the gate forbids; None without a gate.
        required: The evaluations in a row in which it has to be in such a state.
    """
    states = _FORBIDDEN_STATES[fail_on]
    forbidden = [each for each in unfold(findings) if is_lasting(each, states, required) and each.is_fault]
    return max(forbidden, key=lambda finding: finding.severity, default=None)


def is_lasting(finding: Finding, states: Collection[str], required: int) -> bool:
    """Return whether a finding was in one of the states in the last evaluations in a row, this one included.

    Args:
        finding: The finding; of older records, which know no more than the last state, that one counts for all.
        states: The states.
        required: The number of evaluations, at least 1.
    """
    latest = (finding.states or (finding.state,) * required)[-required:]
    return len(latest) == required and all(state in states for state in latest)


def raise_if_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> None:
    """Raise an error for the gravest finding that `fail_on` forbids.

    Args:
        findings: As for `gravest_forbidden`.
        fail_on: As for `gravest_forbidden`.
        required: As for `gravest_forbidden`.

    Raises:
        FindingError: If there is one.
    """
    finding = gravest_forbidden(findings, fail_on, required)
    if finding is not None:
        times = f" in {required} evaluations in a row" if required > 1 else ""
        raise FindingError(f"stopped by fail_on={fail_on!r}{times}: {finding}")


def raise_if_unjudged(evaluated: bool, fail_on: str | None, monitor: str) -> None:
    """Raise an error if a gate would pass because nobody looked.

    Args:
        evaluated: Whether there was any evaluation.
        fail_on: What the gate forbids; None without a gate.
        monitor: The monitor, for the message.

    Raises:
        FindingError: If there is a gate, and was no evaluation.
    """
    if fail_on is not None and not evaluated:
        raise FindingError(
            f"fail_on={fail_on!r}: {monitor} evaluated nothing in this run, so that its gate cannot pass: no "
            "validation was completed (max_steps?), or all evaluations failed"
        )
