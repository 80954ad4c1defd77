"""What the audit of a run's explanations said."""

from pathlib import Path
from typing import Any

from lrptrain.dashboard.runs import file_in, read_json_or_note
from lrptrain.loggers.local import PROOFS

PNG = b"\x89PNG\r\n\x1a\n"


def read_audit(folder: Path) -> dict[str, Any]:
    """The audit in the folder of a run.

    Returns:
        `there`, whether there is one; `verdicts`: with `method`, `faithful`, `reasons` and `numbers` (by test: `value`,
        `low` and `high`); `tests`: by test, what its number is (`number`) and the `range` to show it in; `remarks`
        in words; `about` the samples; `left_out`: tests that were not run, and why; `pictures`: names of
        PNGs; and `notes`.
    """
    notes: list[str] = []
    content = read_json_or_note(file_in(folder, "audit", "results.json"), notes)
    results = content if isinstance(content, dict) else {}
    about = results.get("about")
    return {
        "there": bool(results),
        "verdicts": [
            _verdict(verdict) for verdict in _dicts(results.get("verdicts")) if isinstance(verdict.get("method"), str)
        ],
        "tests": _tests(results.get("tests")),
        "remarks": _strings(results.get("notes")),
        "about": about if isinstance(about, dict) else {},
        "left_out": [_left_out(unit) for unit in _dicts(results.get("units")) if unit.get("problem")],
        "pictures": [
            path.stem for path in sorted((folder / "audit").glob("*.png")) if audit_picture(folder, path.stem)
        ],
        "notes": notes,
    }


def audit_picture(folder: Path, name: str) -> Path | None:
    """A picture of the audit by its name; None if there is none, or if it is no PNG."""
    # The name comes from a request: it must stay in the folder, and be what the page takes it for.
    return _png(folder, "audit", f"{name}.png") if "/" not in name and "\\" not in name else None


def proof_picture(folder: Path, name: str) -> Path | None:
    """The picture of a finding's proof by its path in the run's folder; None if there is none, or it is no PNG."""
    parts = name.split("/")
    # As `lrptrain.loggers.local` writes them: no other file of the run is given out by this way.
    if len(parts) != 3 or parts[0] != PROOFS or not name.endswith(".png") or "\\" in name:
        return None
    return _png(folder, *parts)


def _png(folder: Path, *parts: str) -> Path | None:
    path = file_in(folder, *parts)
    if path is None:
        return None
    with path.open("rb") as file:
        return path if file.read(len(PNG)) == PNG else None


def _verdict(verdict: dict[str, Any]) -> dict[str, Any]:
    numbers = verdict.get("numbers")
    scores = numbers if isinstance(numbers, dict) else {}
    return {
        "method": verdict["method"],
        "faithful": str(verdict.get("faithful")),
        "reasons": _strings(verdict.get("reasons")),
        "numbers": {
            test: {key: score.get(key) for key in ("value", "low", "high")}
            for test, score in scores.items()
            if isinstance(score, dict)
        },
    }


def _tests(tests: Any) -> dict[str, dict[str, Any]]:
    """How the page shows the numbers of each test; a record of an earlier version does not say."""
    return {
        name: {"number": test["number"], "range": test["range"]}
        for name, test in (tests.items() if isinstance(tests, dict) else ())
        if isinstance(test, dict) and isinstance(test.get("number"), str) and _is_range(test.get("range"))
    }


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(end, int | float) for end in value)


def _left_out(unit: dict[str, Any]) -> str:
    # For example "perturbation of rollout: out of time".
    named = " of ".join(str(unit[key]) for key in ("test", "of") if unit.get(key))
    return f"{named}: {unit['problem']}"


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _strings(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
