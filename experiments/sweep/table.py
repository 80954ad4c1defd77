"""The table of tested models in the docs, from the results.

.venv/bin/python -m experiments.sweep.table
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.command import no_options
from experiments.parallel import load
from experiments.sweep.words import ATTENTION, METHODS, OK, REASONS
from experiments.table import markdown, write_between

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
PAGE = ROOT / "docs" / "reference" / "tested-models.md"
Row = dict[str, Any]


def rows(library: str) -> list[Row]:
    """All results of a library that could be built."""
    return [row for _, row in sorted(load(RESULTS / f"{library}.jsonl").items()) if "unbuilt" not in row]


def unbuilt() -> list[Row]:
    """Models that could not be built or run without lrptrain."""
    found = [load(RESULTS / f"{library}.jsonl").values() for library in ("timm", "transformers", "torchvision")]
    return [row for each in found for row in each if "unbuilt" in row]


def words(verdict: str) -> str:
    """A verdict in few words."""
    if verdict == OK:
        return OK
    for kind in ("wrong", "traceback"):
        if verdict.startswith(kind):
            return f"**{kind.upper()}**: {verdict[len(kind) + 2 :][:60]}".replace("|", "/")
    if verdict == "time" or verdict.startswith("died"):
        return "time or memory"
    for pattern, phrase in REASONS:
        match = re.search(pattern, verdict)
        if match:
            return phrase.format(*match.groups())
    return re.sub(r"\s+", " ", verdict.removeprefix("refused: ").split(";")[0])[:60].replace("|", "/")


def family_table(found: Sequence[Row]) -> str:
    """A line per family and task: by method how many of its classes it serves, or why none."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["family"], row["task"]), []).append(row)
    return markdown([_family_row(*key, group) for key, group in sorted(groups.items())])


def _family_row(family: str, task: str, group: Sequence[Row]) -> dict[str, str]:
    cells = {method: _cell([row["methods"][method] for row in group if method in row["methods"]]) for method in METHODS}
    kinds = sorted({row.get("attention", "?") for row in group})
    changed = [row["model"] for row in group if "model" in row]
    line = {"family": family, "input": task, "models": str(len(group)), "attention": ", ".join(kinds), **cells}
    return {**line, "family": f"{family} **(model changed)**"} if changed else line


def _cell(verdicts: Sequence[str]) -> str:
    if not verdicts:
        return "-"
    served = sum(verdict == OK for verdict in verdicts)
    if served == len(verdicts):
        return OK
    (reason, _), *_ = Counter(words(verdict) for verdict in verdicts if verdict != OK).most_common()
    return reason if served == 0 else f"{served} of {len(verdicts)}: {reason}"


def counts(groups: dict[str, Sequence[Row]]) -> str:
    """A line per method: how many models it serves, of those that have what it needs."""
    lines = []
    for method in METHODS:
        line = {"method": f"`{method}`"}
        for title, found in groups.items():
            line[title] = _share(method, [row for row in found if _has_what_it_needs(method, row)])
        lines.append(line)
    return markdown(lines)


def local_counts(found: Sequence[Row]) -> str:
    """A line per method on attention maps: how many models it serves that attend in windows, or to merged tokens."""
    local = [row for row in found if row.get("attention") == "local"]
    methods = [method for method in METHODS if method in ATTENTION]
    return markdown([{"method": f"`{method}`", "local attention": _share(method, local)} for method in methods])


def _share(method: str, found: Iterable[Row]) -> str:
    verdicts = [row["methods"][method] for row in found if method in row["methods"]]
    if not verdicts:
        return "-"
    served = sum(verdict == OK for verdict in verdicts)
    return f"{served / len(verdicts):.0%} ({served} of {len(verdicts)})"


def _has_what_it_needs(method: str, row: Row) -> bool:
    return method not in ATTENTION or row.get("attention") == "global"


def faults(found: Iterable[Row]) -> dict[str, int]:
    """Maps that are wrong, models that are changed, and errors that are not ours."""
    kinds = {"wrong maps": 0, "changed models": 0, "tracebacks": 0, "out of time or memory": 0}
    for row in found:
        verdicts = list(row["methods"].values())
        kinds["wrong maps"] += sum(verdict.startswith("wrong") for verdict in verdicts)
        kinds["tracebacks"] += sum(verdict.startswith("traceback") for verdict in verdicts)
        kinds["out of time or memory"] += sum(verdict == "time" or verdict.startswith("died") for verdict in verdicts)
        kinds["changed models"] += "model" in row
    return kinds


def by_library() -> dict[str, Sequence[Row]]:
    """All results that were built."""
    return {library: rows(library) for library in ("timm", "torchvision", "transformers")}


def summary() -> str:
    """What was run, with what result, and the counts."""
    libraries = by_library()
    every = [row for found in libraries.values() for row in found]
    commits = ", ".join(f"`{name}` ({count})" for name, count in Counter(row["commit"] for row in every).most_common())
    sums = ", ".join(f"{count} {name}" for name, count in faults(every).items())
    kinds = Counter(row.get("attention", "?") for row in every)
    return (
        f"{len(every)} models of {len({(row['library'], row['family']) for row in every})} families were run "
        f"({kinds['global']} with global attention, {kinds['local']} with local attention, {kinds['none']} without a "
        f"square attention matrix), at the commits {commits} (in brackets: models). Among "
        f"{sum(len(row['methods']) for row in every)} maps: {sums}. {len(unbuilt())} more models could not be built or "
        f"run without lrptrain.\n\n{counts({'all': every, **libraries})}\n\n"
        "The last five methods, those on attention maps: of the models with global attention. Of those with local "
        f"attention, before these methods refused it:\n\n{local_counts(every)}"
    )


def page() -> str:
    """The whole page."""
    libraries = by_library()
    parts = [HEAD, "## Counts", summary()]
    for library, found in libraries.items():
        parts += [f"## {library}", family_table(found)]
    parts += ["## Not built", markdown(_unbuilt_lines()) if unbuilt() else "None."]
    return "\n\n".join(parts) + "\n"


def _unbuilt_lines() -> list[dict[str, str]]:
    return [
        {"model": row["key"], "why": re.sub(r"\s+", " ", row["unbuilt"])[:100].replace("|", "/")}
        for row in sorted(unbuilt(), key=lambda row: row["key"])
    ]


HEAD = """# Tested models

Which model does which method serve? This page is generated from `experiments/sweep/results` by
`python -m experiments.sweep.table`; [experiments/sweep](../../experiments/sweep/README.md) says what was asked and how
to repeat it. Models have random weights and run in float64, two samples at a time, texts with padding.

**ok** means: maps are finite and not all zero, a batch equals its samples alone, a second call equals the first, and
the model is left as it was. `input_x_gradient` equals autograd's. `integrated_gradients` sum to the change of the
logit. `rollout` and `raw_attention` equal what is made by hand of the attention that a transformers model returns,
where that is square. Anything else is the reason that the error gives, in few words. **Global** attention sees all
tokens in every block; **local** attention has windows, merged or reduced tokens. Since this run methods on
attention maps refuse local attention: what is `ok` there is of the code before. `attnlrp` serves it."""


def main() -> None:
    no_options(__doc__)
    PAGE.write_text(page(), encoding="utf-8")
    write_between(Path(__file__).resolve().parent / "README.md", summary())
    print(f"{PAGE} ({', '.join(f'{name} {version(name)}' for name in ('torch', 'transformers', 'timm'))})")


if __name__ == "__main__":
    main()
