"""What loggers, the W&B workspace and the page need to know of a logged scalar; it is declared where it is computed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

# Sections of the workspace.
WHERE_IT_LOOKS = "Where it looks"
FINDINGS = "Findings"
CLASSES = "Classes, groups and regions"
GUIDANCE = "Guidance"
COST = "Cost of the monitor"

_PATH_MARKS = re.compile(r"[/\\]")


@dataclass(frozen=True)
class LoggedMetric:
    """A logged scalar, or several that belong into one plot.

    Attributes:
        keys: Keys behind the prefix, such as `label/auprc`; `*` stands for any name, such as that of a class.
        title: What plots are called.
        section: Section of the W&B workspace.
        higher_is_better: Whether a higher value is better; None if neither is.
        unit: What a value counts; a share lies in 0..1 and is shown in percent.
        bounds: The least and the largest possible value; None where there are none.
        references: Keys of what the value is compared with, drawn beside it.
        prefix: What the keys start with; a monitor's `relevance` becomes `relevance/<name>` if it has a name.
        explanation: What a value means, in one sentence that the page shows; "" where there is none.
        is_main: Whether it goes to loggers that are given the main scalars alone.
        kept: What W&B's summary of a run keeps; by default the last value, and the best one where one is better.
    """

    keys: tuple[str, ...]
    title: str
    section: str
    higher_is_better: bool | None = None
    unit: Literal["share", "count", "seconds", "megabytes", "number"] = "share"
    bounds: tuple[float, float] | None = None
    references: tuple[str, ...] = ()
    prefix: str = "relevance"
    explanation: str = ""
    is_main: bool = False
    kept: str | None = None

    @property
    def summary(self) -> str | None:
        """What W&B's summary keeps, as `define_metric` takes it; None for the last value alone."""
        # The last value alone would hide an epoch that was better, and the best alone that the run got worse.
        if self.kept is not None or self.higher_is_better is None:
            return self.kept
        return "max,last" if self.higher_is_better else "min,max,last"

    def matches(self, key: str, references: bool = True) -> bool:
        """Whether a key, without its prefix, is one of these, or of what they are compared with."""
        keys = (*self.keys, *self.references) if references else self.keys
        return any(re.fullmatch(pattern(each), key) for each in keys)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as `run.json` has them."""
        # A subclass may hold functions, which JSON cannot: only what this class declares is written.
        return asdict(LoggedMetric(**{name: getattr(self, name) for name in LoggedMetric.__dataclass_fields__}))


def pattern(key: str) -> str:
    """Return a key as a regular expression: `label/region/*` becomes `label/region/.+`."""
    return re.escape(key).replace(r"\*", ".+")


def key_names(names: Sequence[str]) -> list[str]:
    """Return names as the last part of a key: without a slash, and never two alike.

    Loggers that keep a file per key make folders of slashes, and no folder can have the name of a file: with classes
    `cat` and `cat/wild`, the file of the first would be the folder of the second.
    """
    cleaned = [_PATH_MARKS.sub("_", name) if name.strip(". ") else "_" for name in names]
    # e.g. a/b and a_b: both have their index behind them
    return [f"{name}_{i}" if cleaned.count(name) > 1 else name for i, name in enumerate(cleaned)]


def find_metric(metrics: Iterable[LoggedMetric], key: str) -> LoggedMetric | None:
    """The first metric that has a key, given without its prefix; None if there is none."""
    return next((metric for metric in metrics if metric.matches(key)), None)
