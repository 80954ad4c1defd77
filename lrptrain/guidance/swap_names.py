"""What users say that is swapped: names, cues, and findings that hold cues."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from lrptrain.cues.cue import Cue
from lrptrain.cues.family import FAMILIES, Family
from lrptrain.cues.length import Length
from lrptrain.cues.order import Order
from lrptrain.cues.places import background, places
from lrptrain.cues.row_count import RowCount
from lrptrain.cues.row_mark import RowMark
from lrptrain.cues.row_segment import AllRows
from lrptrain.cues.rows import Stretch
from lrptrain.cues.segment import AllWords
from lrptrain.cues.series import SeriesPart, SeriesSurroundings
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.texts import Language
from lrptrain.cues.visual import registered_looks
from lrptrain.cues.whole_input import WholeInput

OUTSIDE = "outside"
FINDINGS = "findings"
"""What users call the faults that the monitor of the same run finds."""
OF_IMAGES: Mapping[str, Callable[[], Cue]] = {
    OUTSIDE: Surroundings,
    **{look.kind: partial(look.of, "image", "unreviewed") for look in registered_looks()},
    "border": lambda: places("unreviewed")[0],
    "background": background,
}
OF_TEXTS: Mapping[str, Callable[[Language], Cue]] = {
    OUTSIDE: lambda language: AllWords("everything outside the annotation", "shortcut", language, "outside"),
    "length": lambda language: Length("the length of the text", "unreviewed", language),
    "order": lambda language: Order("the order of the words", "unreviewed", language),
    **{each: partial(Family.of, each, "unreviewed") for each in FAMILIES},
}
OF_ROWS: Mapping[str, Callable[[], Cue]] = {
    OUTSIDE: lambda: AllRows("everything outside the annotation", "shortcut", "outside"),
}
Medium = Literal["images", "texts", "rows"]
NAMES = tuple(dict.fromkeys((*OF_IMAGES, *OF_TEXTS, *OF_ROWS, FINDINGS)))
_FORMER = {
    "surroundings": "'outside'",
    "statistics": "'colour'",
    "outside+statistics": "['outside', 'colour']",
    "detail": "'spectrum'",
    "shading": "'light'",
    "edges": "'border'",
    "markers": "'links, mentions, tags and dates'",
    "case": "'capitalised words'",
}
"""Names of earlier versions, and what takes their place."""


class HoldsCue(Protocol):
    """What an inspection or a monitor says of a cue."""

    @property
    def cue(self) -> Cue | None:
        """The cue; None where it was read from a record."""

    @property
    def verdict(self) -> str:
        """Whether the model relies on it."""

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault."""


SwapOption = str | Cue | HoldsCue | Sequence[str | Cue | HoldsCue]


class Asked(NamedTuple):
    """What is swapped.

    Attributes:
        warning: What the user has to know of it; "" for nothing.
        inputs: The inputs of the model in which findings lie, as far as they say.
    """

    several: list[str | Cue]
    warning: str = ""
    inputs: frozenset[str] = frozenset()


def asked_for(swap: SwapOption) -> Asked:
    """Return what a user names; of findings, those that are faults, or a single one."""
    given: list[Any] = list(swap) if isinstance(swap, Iterable) and not isinstance(swap, str) else [swap]
    if not given:
        raise ValueError("swap=[] names nothing: where no fault is found, there is nothing to swap")
    several: list[str | Cue] = []
    findings: list[Any] = []
    for each in given:
        if isinstance(each, str):
            several.append(known_name(each))
        elif isinstance(each, Cue):
            several.append(each)
        elif all(hasattr(each, name) for name in ("cue", "verdict", "is_fault")):
            findings.append(each)
        else:
            raise ValueError(
                f"swap takes names ({', '.join(NAMES)}), cues and findings such as report.faults, not "
                f"{type(each).__name__}"
            )
    chosen, warning = _chosen(findings) if findings else ([], "")
    several += chosen
    kinds = sorted({str(medium_of(each)) for each in several if medium_of(each) is not None})
    if len(kinds) > 1:
        raise ValueError(f"swap= names cues of {' and of '.join(kinds)}: train on those of one kind")
    return Asked(several, warning, frozenset(name for each in findings if (name := getattr(each, "input", ""))))


def known_name(name: str, option: str = "swap", names: Sequence[str] = NAMES) -> str:
    """Return a name that an option takes."""
    if name in _FORMER:
        raise ValueError(f"{option}={name!r} is now {option}={_FORMER[name]}")
    if name not in names:
        raise ValueError(f"unknown {option} {name!r}; known are {', '.join(names)}")
    return name


def _chosen(findings: Sequence[Any]) -> tuple[list[Cue], str]:
    """Return the cues of findings that are swapped, and a warning."""
    relied = [each for each in findings if each.verdict == "relies"]
    if not relied:
        raise ValueError(
            f"the model relies on none of these {len(findings)} findings: to swap one nevertheless, pass its cue, "
            "swap=findings[0].cue"
        )
    faults = [each for each in relied if each.is_fault]
    if not faults and len(findings) > 1:
        raise ValueError(
            f"none of these {len(findings)} findings is a fault: pass one that you know to be one, "
            "swap=[findings[0]], or the cues of several, swap=[findings[0].cue, findings[1].cue]"
        )
    chosen = faults or relied
    if any(each.cue is None for each in chosen):
        raise ValueError(
            "findings read from a record hold no cue: take them from an inspection, "
            "swap=lrptrain.inspect(model, data).faults"
        )
    cues = [each.cue for each in chosen]
    if faults:
        return cues, ""
    return cues, f"swap= takes away {cues[0].name}: if it is evidence, the model cannot learn by it any more"


def medium_of(each: str | Cue) -> Medium | None:
    """Return what a name or cue is one of; None if it may be of several."""
    if isinstance(each, WholeInput):
        return None
    if isinstance(each, Cue):
        is_of_rows = isinstance(each, (Stretch, RowMark, RowCount, SeriesPart, SeriesSurroundings))
        return "texts" if hasattr(each, "language") else "rows" if is_of_rows else "images"
    names: Mapping[Medium, Mapping[str, Any]] = {"images": OF_IMAGES, "texts": OF_TEXTS, "rows": OF_ROWS}
    known = [medium for medium, of_medium in names.items() if each in of_medium]
    return known[0] if len(known) == 1 else None
