"""From saved runs to tables: means with 95 % intervals over seeds and scenes, and paired differences."""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from experiments.intervals import compared, estimate
from experiments.parallel import Run
from experiments.segment_scenes.stages import BRIGHTNESS, OUTLINE
from experiments.segment_scenes.things import REFINEMENTS
from experiments.table import markdown
from lrptrain.relevance.registry import get_method

SEGMENTERS = ("pseudo-masks", "full masks")
REFINED = "pixel_adaptive"
"""The refinement by which sources are held against another one."""


def tables(runs: Sequence[Run], other: str) -> dict[str, str]:
    """The text between each pair of marks of README.md; sources are held against another one."""
    return {"sources": _sources(runs, other), "segmenters": _segmenters(runs)}


def _cell(shares: Iterable[Sequence[float]]) -> str:
    """Mean and half width in percent; the test scenes are the same for all seeds."""
    percent = estimate([_percent(own) for own in shares], same_samples=True)
    return f"{percent.mean:.1f} ± {percent.half:.1f}"


def _percent(shares: Sequence[float]) -> Float[np.ndarray, " scenes"]:
    return 100 * np.asarray(shares)


def _quotient(totals: Float[np.ndarray, "resamples 2"]) -> Float[np.ndarray, " resamples"]:
    """In percent."""
    return 100 * totals[:, 0] / totals[:, 1]


def _sources(runs: Sequence[Run], other: str) -> str:
    """The best on the validation scenes first."""
    names = sorted(runs[0]["sources"], key=lambda name: -sum(run["sources"][name]["none"]["val"] for run in runs))
    refined = {name: [_percent(run["sources"][name][REFINED]["test"]) for run in runs] for name in names}
    differences = compared(refined, other, same_samples=True, digits=1)
    rows = []
    for name in names:
        own = [run["sources"][name] for run in runs]
        rows.append({"seeds": name, "asks for a class": _asks(name)})
        rows[-1] |= {step: _cell([run[step]["test"] for run in own]) for step in REFINEMENTS}
        rows[-1][f"{REFINED}, minus {other}"] = differences[name]
        rows[-1]["anything"] = _cell([run["none"]["anything"] for run in own])
    return markdown(rows)


def _asks(source: str) -> str:
    if source in (BRIGHTNESS, OUTLINE):
        return "no"
    return "yes" if get_method(source.partition(" ")[0], {}).class_specific else "no"


def _segmenters(runs: Sequence[Run]) -> str:
    best = [(run["segmenters"]["source"], run["segmenters"]["refinement"]) for run in runs]
    own = [run["sources"][source][step] for run, (source, step) in zip(runs, best, strict=True)]
    trained = {name: [run["segmenters"][name]["test"] for run in runs] for name in SEGMENTERS}
    rows = [
        {"masks": "pseudo-masks, names given", "test": _cell([run["test"] for run in own])},
        {"masks": "pseudo-masks, names predicted", "test": _cell([run["said"] for run in own])},
    ]
    rows += [{"masks": f"segmenter trained on {name}", "test": _cell(found)} for name, found in trained.items()]
    parts = [np.stack(own, axis=1) for own in zip(*trained.values(), strict=True)]
    share = estimate(parts, same_samples=True, statistic=_quotient)
    chosen = "; ".join(dict.fromkeys(f"`{source}` with `{step}`" for source, step in best))
    full = f"Share of full supervision: {share.mean:.1f} ± {share.half:.1f} %."
    return f"Best on the validation scenes: {chosen}.\n\n{markdown(rows)}\n\n{full}"
