"""When a finding ends a run."""

from collections.abc import Sequence

from lrptrain.findings import Finding

_FORBIDDEN = {None: (), "suspected": ("suspected", "confirmed"), "confirmed": ("confirmed",)}


class FindingError(RuntimeError):
    """Training has ended because a finding was made that `fail_on` forbids."""


def forbidden(findings: Sequence[Finding], fail_on: str | None) -> Finding | None:
    """The gravest finding that `fail_on` forbids, or None."""
    found = [finding for finding in findings if finding.state in _FORBIDDEN[fail_on]]
    return max(found, key=lambda finding: finding.severity, default=None)


def refuse(findings: Sequence[Finding], fail_on: str | None) -> None:
    """Let no forbidden finding pass.

    Raises:
        FindingError: If there is one.
    """
    gravest = forbidden(findings, fail_on)
    if gravest is not None:
        raise FindingError(f"stopped by fail_on={fail_on!r}: {gravest}")
