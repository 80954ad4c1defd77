"""From saved pairs to the tables of README.md."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments.benchmark.asked import ANNOTATED, BARE, RANDOM
from experiments.benchmark.training import CLEAN, DOES_NOT, READS
from experiments.parallel import Run
from experiments.table import markdown

ALPHA = 0.01
"""Of the test whether a mark of any class costs accuracy."""


class Ratio(NamedTuple):
    """A share of 0..1 with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "" if np.isnan(self.value) else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def share(hits: float, number: int) -> Ratio:
    """Wilson's interval; a half hit is a tie."""
    if not number:
        return Ratio(np.nan, np.nan, np.nan)
    z = float(stats.norm.ppf(0.975))
    rate = hits / number
    middle = (rate + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * np.sqrt(rate * (1 - rate) / number + z**2 / (4 * number**2))
    return Ratio(rate, max(middle - half, 0.0), min(middle + half, 1.0))


def uses(pair: Run) -> bool:
    """Whether the model that could read the mark surely does."""
    return costs(pair[READS])


def costs(counts: Run) -> bool:
    """Whether marks of any class surely cost accuracy: more answers are lost than won (McNemar, exact)."""
    lost, won = counts["lost"], counts["won"]
    return lost + won > 0 and float(stats.binomtest(lost, lost + won, alternative="greater").pvalue) < ALPHA


def listed(named: Sequence[Run]) -> str:
    """What is named, with its effect; faults in bold."""
    marks = ["**" * each["is_fault"] for each in named]
    return "; ".join(f"{x}{each['cue']}{x} {each['effect']:.2f}" for x, each in zip(marks, named, strict=True))


def found(model: Run, name: str) -> list[Run]:
    """What a report finds in a model: faults with annotations; without them nothing is one, and all counts."""
    return [each for each in model[name]["named"] if each["is_fault"] or not name.startswith(ANNOTATED)]


def reliance(name: str) -> Callable[[Run], float]:
    """The score of a report: the largest effect that is sure of what it finds, 0 without any; nan without a report."""
    return lambda model: max((each["low"] for each in found(model, name)), default=0.0) if name in model else np.nan


def plain(name: str) -> Callable[[Run], float]:
    """The score of what gives a number alone."""
    return lambda model: np.nan if model[name] is None else model[name]


SCORES: dict[str, Callable[[Run], float]] = {
    "accuracy alone": plain("accuracy"),
    "plain features of the images": plain("plain features"),
    "the same by cleanlab's Datalab": plain("cleanlab Datalab"),
    "relevance outside the annotation alone": plain("mass outside"),
    "clusters of maps": plain("clusters of maps"),
    "the same by corelay's SpRAy": plain("corelay SpRAy"),
    "worst slice of errors (the idea of Domino)": plain("error slice"),
    **{f"report {name}, {RANDOM}": reliance(f"{name}, {RANDOM}") for name in (ANNOTATED, BARE)},
    **{f"report {name}": reliance(name) for name in (ANNOTATED, BARE)},
}
"""What could embarrass comes first."""


def wins(pairs: Sequence[Run], score: Callable[[Run], float]) -> Ratio:
    """How often the model that reads the mark has the larger score of the two on the same data; ties count half."""
    both = [(score(pair[READS]), score(pair[DOES_NOT])) for pair in pairs]
    both = [each for each in both if not np.isnan(each).any()]
    return share(sum(1.0 if one > other else 0.5 if one == other else 0.0 for one, other in both), len(both))


def tables(pairs: Sequence[Run]) -> dict[str, str]:
    """All of them, by name."""
    learned = [pair for pair in pairs if uses(pair)]
    return {"pairs": told_apart(pairs, learned), "verdicts": verdicts(pairs, learned), "kinds": kinds(pairs)}


def told_apart(pairs: Sequence[Run], learned: Sequence[Run]) -> str:
    """In how many pairs each score tells the model that reads the mark."""
    images = [pair for pair in learned if pair["task"] not in ("texts", "moods")]
    texts = [pair for pair in learned if pair["task"] in ("texts", "moods")]
    columns = {"all": learned, "images": images, "texts": texts, "planted, also where it was not learned": pairs}
    rows = []
    for name, score in SCORES.items():
        if str(wins(pairs, score)):
            rows.append({"": name, **{title: str(wins(some, score)) for title, some in columns.items()}})
    return markdown(rows)


def verdicts(pairs: Sequence[Run], learned: Sequence[Run]) -> str:
    """What the report says by itself, with its defaults."""
    rows = []
    for name in (f"{ANNOTATED}, {RANDOM}", f"{BARE}, {RANDOM}", ANNOTATED, BARE):
        if not all(name in pair[READS] for pair in pairs):
            continue
        row = {"report": name, "found": _counted([bool(found(pair[READS], name)) for pair in learned])}
        weak = [pair for pair in learned if pair[READS]["shown"] - pair[READS]["unbiased"] < 0.10]
        row["of them weak"] = _counted([bool(found(pair[READS], name)) for pair in weak])
        row["the mark named first"] = "" if RANDOM in name else _counted([is_the_mark(pair, name) for pair in learned])
        for other in (DOES_NOT, CLEAN):
            told = [pair[other] for pair in pairs if name in pair[other]]
            row[f"found in one that {other}"] = _counted([bool(found(model, name)) for model in told])
        rows.append(row)
    return markdown(rows)


def is_the_mark(pair: Run, name: str) -> bool:
    """Whether what is named first is the mark: without the mark, most of its effect is gone."""
    said = pair[READS][name]
    # None: without marks, no sample has it.
    return bool(said["named"]) and (said["without the mark"] or 0.0) <= said["named"][0]["effect"] / 2


def kinds(pairs: Sequence[Run]) -> str:
    """Every pair: what the mark costs, and what is named of the model that reads it."""
    rows = []
    for pair in sorted(pairs, key=lambda pair: (pair["task"], -pair["correlation"], pair["kind"])):
        reads = pair[READS]
        row = {"planted": f"{pair['kind']}, {pair['task']}", "share": f"{pair['correlation']:g}"}
        row["accuracy"] = f"{reads['shown']:.2f} to {reads['unbiased']:.2f}{'' if uses(pair) else ' (not used)'}"
        row["clean"] = f"{pair[CLEAN][BARE]['accuracy']:.2f}"
        for name in (ANNOTATED, BARE):
            row[name] = listed(reads[name]["named"][:2])
        rows.append(row)
    return markdown(rows)


def _counted(flags: Sequence[bool]) -> str:
    """How many of how many, with Wilson's interval of the share."""
    ratio = share(sum(flags), len(flags))
    return f"{sum(flags)} of {len(flags)} ({ratio.low:.2f} to {ratio.high:.2f})" if flags else ""
