"""From saved runs to tables: means with 95 % intervals over seeds, and paired differences."""

from collections.abc import Iterable, Sequence

from experiments.intervals import compared
from experiments.parallel import Run
from experiments.segment_digits.stages import BRIGHTNESS, REFINEMENTS
from experiments.table import markdown, mean_interval
from lrptrain.relevance.registry import get_method

SEGMENTERS = ("pseudo-masks", "full masks")
REFINED = "pixel_adaptive"
"""The refinement by which sources are held against the image's brightness."""


def tables(runs: Sequence[Run]) -> dict[str, str]:
    """The text between each pair of marks of README.md."""
    return {"sources": _sources(runs), "segmenters": _segmenters(runs)}


def _cell(shares: Iterable[float]) -> str:
    mean, half = mean_interval([100 * share for share in shares])
    return f"{mean:.1f} ± {half:.1f}"


def _sources(runs: Sequence[Run]) -> str:
    """The best on the validation scenes first."""
    names = sorted(runs[0]["sources"], key=lambda name: -sum(run["sources"][name]["none"]["val"] for run in runs))
    refined = {name: [[100 * run["sources"][name][REFINED]["test"]] for run in runs] for name in names}
    differences = compared(refined, BRIGHTNESS, same_samples=False, digits=1)
    rows = []
    for name in names:
        own = [run["sources"][name] for run in runs]
        rows.append({"seeds": name, "asks for a class": _asks(name)})
        rows[-1] |= {step: _cell([run[step]["test"] for run in own]) for step in REFINEMENTS}
        rows[-1][f"{REFINED}, minus {BRIGHTNESS}"] = differences[name]
        rows[-1]["any digit"] = _cell([run["none"]["digit"] for run in own])
    return markdown(rows)


def _asks(source: str) -> str:
    return "yes" if source != BRIGHTNESS and get_method(source.partition(" ")[0], {}).class_specific else "no"


def _segmenters(runs: Sequence[Run]) -> str:
    best = [(run["segmenters"]["source"], run["segmenters"]["refinement"]) for run in runs]
    own = [run["sources"][source][step] for run, (source, step) in zip(runs, best, strict=True)]
    trained = {name: [run["segmenters"][name]["test"] for run in runs] for name in SEGMENTERS}
    rows = [
        {"masks": "pseudo-masks, digits given", "test": _cell([run["test"] for run in own])},
        {"masks": "pseudo-masks, digits predicted", "test": _cell([run["said"] for run in own])},
    ]
    rows += [{"masks": f"segmenter trained on {name}", "test": _cell(found)} for name, found in trained.items()]
    share = _cell([some / full for some, full in zip(*trained.values(), strict=True)])
    chosen = "; ".join(dict.fromkeys(f"`{source}` with `{step}`" for source, step in best))
    return f"Best on the validation scenes: {chosen}.\n\n{markdown(rows)}\n\nShare of full supervision: {share} %."
