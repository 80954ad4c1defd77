"""When a finding ends a run."""

from collections.abc import Collection, Sequence

from lrptrain.findings import Finding, reliance

FORBIDDEN: dict[str | None, tuple[str, ...]] = {
    None: (),
    "not sure": ("not sure", "relies"),
    "relies": ("relies",),
}
"""What `fail_on` forbids: verdicts on faults."""


FAIL_AFTER = 2
"""A finding ends a run when it stands in so many evaluations in a row: a single one is wrong now and then."""


class FindingError(RuntimeError):
    """Training has ended because of a finding that `fail_on` forbids."""


def gravest_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> Finding | None:
    """Return the gravest finding that `fail_on` forbids, or None. What a person has to judge is not forbidden.

    Args:
        findings: The facts of the last evaluation.
        fail_on: What the gate forbids; None without a gate.
        required: The evaluations in a row in which it has to have such a verdict.
    """
    forbidden = [each for each in findings if each.role == "fault" and is_lasting(each, FORBIDDEN[fail_on], required)]
    return max(forbidden, key=lambda finding: reliance([finding]), default=None)


def is_lasting(finding: Finding, verdicts: Collection[str], required: int) -> bool:
    """Return whether a finding had one of the verdicts in the last evaluations in a row, this one included.

    Args:
        finding: The finding; of older records, which know no more than the last verdict, that one counts for all.
        verdicts: The verdicts.
        required: The number of evaluations, at least 1.
    """
    latest = (finding.verdicts or (finding.verdict,) * required)[-required:]
    return len(latest) == required and all(verdict in verdicts for verdict in latest)


def raise_if_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> None:
    """Raise an error for the gravest finding that `fail_on` forbids.

    Raises:
        FindingError: If there is one.
    """
    finding = gravest_forbidden(findings, fail_on, required)
    if finding is not None:
        times = f" in {required} evaluations in a row" if required > 1 else ""
        raise FindingError(f"stopped by fail_on={fail_on!r}{times}: {finding}")


def raise_if_unjudged(evaluated: bool, untested: str, fail_on: str | None, monitor: str) -> None:
    """Raise an error if a gate would pass because nobody looked.

    Args:
        evaluated: Whether there was any evaluation.
        untested: What the last one left untested, in a sentence; "" if nothing that the gate asks for.
        fail_on: What the gate forbids; None without a gate.
        monitor: The monitor, for the message.

    Raises:
        FindingError: If there is a gate, and was no evaluation, or too little was tested.
    """
    if fail_on is not None and evaluated and untested:
        raise FindingError(
            f"fail_on={fail_on!r}: the gate of {monitor} cannot pass after its last evaluation. {untested}"
        )
    if fail_on is not None and not evaluated:
        raise FindingError(
            f"fail_on={fail_on!r}: {monitor} evaluated nothing in this run, so that its gate cannot pass: no "
            "validation was completed (max_steps?), or all evaluations failed"
        )
