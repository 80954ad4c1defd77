"""What the audit of a run's explanations said."""

from pathlib import Path
from typing import Any

from lrptrain.dashboard.runs import file_in, read_json

PNG = b"\x89PNG\r\n\x1a\n"


def read_audit(folder: Path) -> dict[str, Any]:
    """The audit in the folder of a run.

    Returns:
        `there`, whether there is one; `verdicts`: with `method`, `faithful`, `reasons` and `numbers` (by test: `value`,
        `low` and `high`); `tests`: by test, what its number is (`number`) and the `range` to show it in; `sentences`
        and `remarks` in words; `about` the samples; `left_out`: tests that were not run, and why; `pictures`: names of
        PNGs; and `notes`.
    """
    notes: list[str] = []
    found = read_json(file_in(folder, "audit", "results.json"), notes)
    known = found if isinstance(found, dict) else {}
    about = known.get("about")
    return {
        "there": bool(known),
        "verdicts": [_verdict(one) for one in _dicts(known.get("verdicts")) if isinstance(one.get("method"), str)],
        "tests": _tests(known.get("tests")),
        "sentences": _strings(known.get("sentences")),
        "remarks": _strings(known.get("notes")),
        "about": about if isinstance(about, dict) else {},
        "left_out": [_left_out(unit) for unit in _dicts(known.get("units")) if unit.get("problem")],
        "pictures": [
            path.stem for path in sorted((folder / "audit").glob("*.png")) if audit_picture(folder, path.stem)
        ],
        "notes": notes,
    }


def audit_picture(folder: Path, name: str) -> Path | None:
    """A picture of the audit by its name; None if there is none, or if it is no PNG."""
    path = file_in(folder, "audit", f"{name}.png") if "/" not in name and "\\" not in name else None
    if path is None:
        return None
    with path.open("rb") as file:
        return path if file.read(len(PNG)) == PNG else None


def _verdict(one: dict[str, Any]) -> dict[str, Any]:
    numbers = one.get("numbers")
    scores = numbers if isinstance(numbers, dict) else {}
    return {
        "method": one["method"],
        "faithful": str(one.get("faithful")),
        "reasons": _strings(one.get("reasons")),
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
    named = " of ".join(str(unit[key]) for key in ("test", "of") if unit.get(key))
    return f"{named}: {unit['problem']}"


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []


def _strings(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []
