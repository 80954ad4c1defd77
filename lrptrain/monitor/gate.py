"""When a finding ends a run."""

from collections.abc import Sequence

from lrptrain.findings import Finding, is_fault, unfold

_FORBIDDEN_STATES = {None: (), "suspected": ("suspected", "confirmed"), "confirmed": ("confirmed",)}


class FindingError(RuntimeError):
    """Training has ended because of a finding that `fail_on` forbids."""


def gravest_forbidden(findings: Sequence[Finding], fail_on: str | None) -> Finding | None:
    """Return the gravest finding that `fail_on` forbids, or None. What a person has to judge is not forbidden."""
    states = _FORBIDDEN_STATES[fail_on]
    forbidden = [finding for finding in unfold(findings) if finding.state in states and is_fault(finding)]
    return max(forbidden, key=lambda finding: finding.severity, default=None)


def raise_if_forbidden(findings: Sequence[Finding], fail_on: str | None) -> None:
    """Raise an error for the gravest finding that `fail_on` forbids.

    Raises:
        FindingError: If there is one.
    """
    finding = gravest_forbidden(findings, fail_on)
    if finding is not None:
        raise FindingError(f"stopped by fail_on={fail_on!r}: {finding}")


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
