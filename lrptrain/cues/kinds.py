"""All kinds of cues, by the words of records: a cue that was written down is made again."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from lrptrain.cues import plan  # noqa: F401  all kinds of cues are known then
from lrptrain.cues.cue import Cue
from lrptrain.cues.texts import Language


def restored(values: Mapping[str, Any], language: Callable[[], Language]) -> Cue:
    """Return the inverse of `Cue.to_dict`, after JSON has made lists of tuples."""
    kinds = _kinds(Cue)  # type: ignore[type-abstract]
    kind = next((each for each in kinds if getattr(each, "kind", None) == values["kind"]), None)
    if kind is None:
        raise ValueError(f"no kind of cues is called {values['kind']!r} here")
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    of_class = {"kind", "where"} - names
    known: dict[str, Any] = {name: _as_tuples(value) for name, value in values.items() if name not in of_class}
    if "language" in names:
        known["language"] = language()
    return kind(**known)


def _kinds(kind: type[Cue]) -> list[type[Cue]]:
    return [each for below in kind.__subclasses__() for each in (below, *_kinds(below))]


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
