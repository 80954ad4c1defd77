"""When a finding ends a run."""

from collections.abc import Collection, Sequence

from lrptrain.findings import Finding, reliance

FORBIDDEN: dict[str | None, tuple[str, ...]] = {
    None: (),
    "not sure": ("not sure", "relies"),
    "relies": ("relies",),
}
"""What `fail_on` forbids: verdicts on faults."""


class FindingError(RuntimeError):
    """Training has ended because of a finding that `fail_on` forbids."""


def gravest_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> Finding | None:
    """Return the most severe finding that `fail_on` forbids, or None. What needs review is not forbidden."""
    forbidden = [each for each in findings if each.role == "fault" and is_lasting(each, FORBIDDEN[fail_on], required)]
    return max(forbidden, key=lambda finding: reliance([finding]), default=None)


def is_lasting(finding: Finding, verdicts: Collection[str], required: int) -> bool:
    """Return whether a finding had one of the verdicts in the last `required` evaluations in a row."""
    latest = (finding.verdicts or (finding.verdict,) * required)[-required:]
    return len(latest) == required and all(verdict in verdicts for verdict in latest)
