"""Every method on one trained model, in a file of results that a run which was cut off goes on with."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import lrptrain
from experiments.intervals import estimate
from experiments.records import KEY, made_on
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        method: Registered name.
        options: Of the method.
        limit: How many images it can afford; None: all.
        contrast: Explain the difference to another class.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    contrast: bool = False

    @property
    def name(self) -> str:
        """As the table shows it."""
        shown = ", ".join([f"{name}={value}" for name, value in self.options.items()] + ["contrastive"] * self.contrast)
        return f"{self.method} ({shown})" if shown else self.method


DEAR = {"attention_flow", "integrated_gradients", "kernel_shap", "leave_one_out", "lime", "smoothgrad"}
"""Methods whose cost is that of many passes; so is that of the feed-forward forms of the norm-based family."""
MORE: dict[str, list[dict[str, Any]]] = {
    "lrp": [{"composite": "split_alpha_beta"}, {"composite": "chefer"}],
    "transformer_attribution": [{"start_layer": 1}],
    "generic_attention": [{"start_layer": 1}],
    "attention_norm": [{"start_layer": 1}],
    "rollout": [{"start_layer": 1}],
    "atb_norm": [{"project": True}],
    "atb_ff_res_norm": [{"project": True}],
}
"""Options that make another row; the first block is left out in the published segmentation test."""


def rows(few: int) -> list[Row]:
    """Every registered method with its defaults, and some options; the dear ones on the first `few` images."""
    limits = {name: few if name in DEAR or name.startswith("atb_ff") else None for name in lrptrain.methods()}
    return [Row(name, options, limits[name]) for name in limits for options in ({}, *MORE.get(name, []))]


def relevance(
    model: nn.Module, images: Float[Tensor, "n channels height width"], target: Int[Tensor, " n"], row: Row
) -> Float[Tensor, "n tokens"]:
    """Scores of all images, in batches."""
    parts = zip(images.split(16), target.split(16), strict=True)
    return torch.cat([lrptrain.attribute(model, x, t, row.method, **row.options).scores for x, t in parts])


def fill(path: Path, head: Result, rows: Sequence[Row], measure: Callable[[Row], Result]) -> Result:
    """Measure the rows that a file of results still lacks, and save it after each.

    A method that does not exist for the model is noted with its reason; what the rows were measured on, too.

    Raises:
        ValueError: If the file is of another run: its head is not `head`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"head": head, "methods": {}}
    if found["head"].keys() != head.keys() or any(not _same(found["head"][key], head[key]) for key in head):
        raise ValueError(f"{path} is of another run ({found['head']}, not {head}); move it away to begin anew")
    for row in rows:
        if row.name in found["methods"]:
            continue
        # A file may be filled on several machines, or at several commits: it names them all.
        if made_on() not in found.setdefault(KEY, []):
            found[KEY].append(made_on())
        try:
            found["methods"][row.name] = measure(row)
        except (UnsupportedMethodError, UnsupportedModelError) as error:
            found["methods"][row.name] = {"unsupported": str(error)}
        path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(f"{path.stem}: {row.name}", flush=True)
    return found


def _same(kept: Any, now: Any) -> bool:
    """Equal, or accuracies that differ by rounding only, as they may on another machine."""
    return abs(kept - now) < 0.005 if isinstance(now, float) else bool(kept == now)


def supported(results: Sequence[Result]) -> list[str]:
    """Rows that every seed has numbers for."""
    every = [result["methods"] for result in results]
    return [
        name for name in every[0] if all("unsupported" not in found.get(name, {"unsupported": ""}) for found in every)
    ]


def absent(results: Sequence[Result]) -> str:
    """A line on the methods without a row, with the first clause of the reason; empty if there are none."""
    reasons = [found["unsupported"].split(",")[0] for found in results[0]["methods"].values() if "unsupported" in found]
    return f"\n\nWithout a row: {'; '.join(reasons)}." if reasons else ""


def per_image(values: Float[Tensor, " n"]) -> list[float]:
    """As results keep a measure: one number an image, so that intervals are over images, too."""
    return [round(value, 5) for value in values.tolist()]


def cell(results: Sequence[Result], *keys: str, same_samples: bool = True) -> tuple[float, str]:
    """Mean over seeds and images, and the text of mean and interval.

    Results that kept only the mean over images have an interval over seeds.
    """
    found = estimate(runs(results, *keys), same_samples)
    return found.mean, str(found)


def runs(results: Sequence[Result], *keys: str) -> list[Float[np.ndarray, " samples"]]:
    """One measure of one method, per seed a number an image, or the one number that was kept."""
    return [np.atleast_1d(_at(result["methods"], keys)) for result in results]


def _at(found: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        found = found[key]
    return found
