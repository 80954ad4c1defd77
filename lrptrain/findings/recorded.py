"""What of a recorded finding cannot be read: a page passes over it, a gate must not."""

from typing import Any

from lrptrain.findings.finding import Finding

_NEEDED = ("name", "kind", "role", "verdict", "effect", "interval", "samples")


def unreadable_part(values: Any) -> str:
    """Return what of a recorded finding is missing, unknown or contradictory; "" where all of it can be read."""
    if not isinstance(values, dict):
        return "a finding that is none"
    if missing := [name for name in _NEEDED if name not in values]:
        return f"a finding without {', '.join(missing)}"
    try:
        finding = Finding.from_dict(values)
        str(finding)  # what has no sentences cannot be shown either
        low, high = finding.interval
        is_told = not finding.relies or -1 <= low <= finding.effect <= high <= 1
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return f"a finding that cannot be read ({_short(error)})"
    if not is_told:
        return "a finding that the model relies on, without its effect"
    if values.get("is_fault", finding.is_fault) != finding.is_fault:
        return "a finding that contradicts its verdict and role"
    return ""


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
