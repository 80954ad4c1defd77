"""Findings of earlier versions, which had a finding per kind and scope, and four words for its state."""

from collections.abc import Mapping
from typing import Any

VERDICT_OF = {
    "confirmed": "relies",
    "suspected": "not sure",
    "unconfirmed": "not sure",
    "refuted": "does not rely",
}

_SCALARS = {"severity": "reliance", "findings_confirmed": "findings", "findings/confirmed": "findings"}
_GONE = (
    "reliance", "reliance_control", "reliance/control", "statistics_reliance", "statistics_reliance_control",
    "findings", "effect_ratio",
)  # fmt: skip


def translated_scalars(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scalars of an evaluation by an earlier version under the names of this one.

    What it called `reliance` was of all surroundings, and goes: the effect of the gravest fault was its `severity`.

    Args:
        scalars: Values by key; those of this version are returned as they are.
    """
    if not any(key.endswith(tuple(f"/{name}" for name in _SCALARS)) for key in scalars):
        return dict(scalars)
    found = {}
    for key, value in scalars.items():
        name = next((name for name in (*_SCALARS, *_GONE) if key.endswith(f"/{name}")), "")
        if name in _SCALARS:
            found[key.removesuffix(name) + _SCALARS[name]] = value
        elif not name:
            found[key] = value
    return found


def translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a finding of an earlier version says, in the words of this one.

    Args:
        values: An entry of `findings` in an old record.

    Raises:
        KeyError: If it has no kind or no known state.
    """
    tested = values.get("intervention") or {}
    scope = str(values.get("scope", "overall"))
    kind = values["kind"].removeprefix("reliance_on_").replace("_", " ")
    place = str(values.get("where") or kind)
    # e.g. "top left (1 of 16 patches)"
    if kind.startswith("focus ") and not place.startswith(("a ", "an ", "the ")):
        place = f"what lies {place.removeprefix('focus ')}"
    # A severity above 0 was only ever that of a fault; of the others, records say since when a person had to judge.
    is_fault = bool(values.get("severity")) or bool(values.get("is_fault", True))
    states = values.get("states") or []  # the first ones know the last state alone
    last = values.get("epoch", 0)
    first = values.get("first_epoch", last)
    verdicts = [VERDICT_OF[state] for state in states]
    # Where one evaluation an epoch makes up their number, their epochs are known.
    epochs = list(range(first, last + 1)) if last - first + 1 == len(verdicts) else []
    return {
        "name": place if scope == "overall" else f"{place} (in {scope})",
        "kind": values["kind"],
        "role": "fault" if is_fault else "open",
        "verdict": VERDICT_OF[values["state"]],
        "effect": tested.get("effect"),
        "interval": tested.get("interval") or (None, None),
        "samples": tested.get("samples") or 0,
        "epoch": last,
        "step": values.get("step", 0),
        "first_epoch": first,
        "history": [],
        "verdicts": verdicts,
        "epochs": epochs,
        "relevance": (values.get("relevance") or {}).get("effect"),
        "area": (values.get("relevance") or {}).get("reference"),
        "worst_samples": values.get("worst_samples") or (),
        "excerpts": values.get("excerpts") or (),
        "medium": values.get("medium") or "",
        "note": "Found by an earlier version, which compared other changes.",
        "proof": values.get("proof"),
    }
