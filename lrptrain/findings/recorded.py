"""What of a recorded finding cannot be read: a page passes over it, a gate must not."""

import math
from dataclasses import replace
from typing import Any, get_args

from lrptrain.findings.finding import Finding, State
from lrptrain.findings.scopes import ScopeKind

_ROUNDING = 1e-6
_NEEDED = ("kind", "scope", "target", "confidence", "epoch", "step", "first_epoch", "state")


def unreadable_part(values: Any) -> str:
    """Return what of a recorded finding is missing, unknown or contradictory; "" where all of it can be read.

    Args:
        values: What a line has in place of a finding; see `Finding.to_dict`.
    """
    if not isinstance(values, dict):
        return "a finding that is none"
    if missing := [name for name in _NEEDED if name not in values]:
        return f"a finding without {', '.join(missing)}"
    states, also = (values.get(name) or [] for name in ("states", "also"))
    if not isinstance(states, list) or not isinstance(also, list):
        return "a finding that cannot be read"
    if unknown := [state for state in (values["state"], *states) if state not in get_args(State)]:
        return f"a finding in the unknown state {_short(unknown[0])}"
    if values.get("scope_kind") not in (None, "", *get_args(ScopeKind)):
        return f"a finding on the unknown scope {_short(values['scope_kind'])}"
    if part := next((part for part in map(unreadable_part, also) if part), ""):
        return part
    try:
        finding = Finding.from_dict(values)
        effect = min(max(float(finding.effect), 0.0), 1.0)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, RecursionError) as error:
        return f"a finding that cannot be read ({_short(error)})"
    severity = recorded_severity(values)
    if finding.state == "confirmed" and (math.isnan(effect) or finding.intervention is None):
        return "a confirmed finding without its effect"
    if math.isnan(severity) or (severity and (finding.state != "confirmed" or abs(severity - effect) > _ROUNDING)):
        return f"a finding whose severity {_short(values['severity'])} is not that of its state and effect"
    return ""


def recorded_severity(values: dict[str, Any]) -> float:
    """Return the severity that a record states, 0 where it states none, nan for what is no number."""
    severity = values.get("severity") or 0.0
    return float(severity) if isinstance(severity, int | float) else math.nan


def as_recorded(values: dict[str, Any]) -> Finding:
    """Return a finding that is a fault where its record says so, whatever this version takes its kind for.

    Args:
        values: What `unreadable_part` can read.
    """
    finding = replace(Finding.from_dict(values), also=tuple(map(as_recorded, values.get("also") or ())))
    return finding.as_fault() if recorded_severity(values) > finding.severity else finding


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
