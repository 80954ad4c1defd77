"""The Pareto front of a run: the validations that no other one beats."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from lrptrain.files import read_whole, write_json
from lrptrain.render.front import draw_front
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import describe_error

Direction = Literal["max", "min"]
FILE = "front.json"
PICTURE = "front.png"


@dataclass(frozen=True)
class ParetoPoint:
    """One validation.

    Attributes:
        epoch: Number of the epoch, from 0 on.
        step: Optimiser steps taken, as in the checkpoint.
        values: Value of each metric by its name; nan where one was undefined.
        path: The checkpoint; None if it was not saved, was removed since, or has vanished.
    """

    epoch: int
    step: int
    values: dict[str, float]
    path: Path | None = None


def check_directions(metrics: Mapping[str, Direction]) -> None:
    """Reject fewer than two metrics, and unknown directions.

    Raises:
        ValueError: The message says what is allowed.
    """
    if len(metrics) < 2:
        raise ValueError(f"a Pareto front needs at least two metrics, not {list(metrics)}")
    if wrong := {name: direction for name, direction in metrics.items() if direction not in ("max", "min")}:
        raise ValueError(f"the direction of a metric must be 'max' or 'min', not {wrong}")


def pareto_front(
    values: Float[np.ndarray, "points metrics"], directions: Iterable[Direction]
) -> Bool[np.ndarray, " points"]:
    """Return which points no other point dominates: none is as good in every metric and better in one.

    Args:
        values: Any numbers; a point with nan is not on the front and dominates none.
        directions: Per metric, whether higher ("max") or lower ("min") is better.

    Returns:
        True on the front; of equal points, for the first one only.
    """
    signs = np.array([1.0 if direction == "max" else -1.0 for direction in directions])
    better = values * signs
    as_good = (better[:, None] >= better[None]).all(axis=-1)  # [i, j]: i is nowhere worse than j
    beaten = (as_good & ~as_good.T) | np.triu(as_good & as_good.T, k=1)
    return ~beaten.any(axis=0) & ~np.isnan(values).any(axis=1)


def values_of(points: Sequence[ParetoPoint], metrics: Iterable[str]) -> Float[np.ndarray, "points metrics"]:
    """Return the values of all points as one array."""
    names = list(metrics)
    return np.array([[point.values[name] for name in names] for point in points]).reshape(len(points), len(names))


def claim_folder(base: Path) -> Path:
    """Make `base`, or `base-2` and so on where another run has its front, and mark it as taken."""
    for number in count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (folder / FILE).touch(exist_ok=False)
            break
    return folder


def write_front(folder: Path, points: Sequence[ParetoPoint], metrics: Mapping[str, Direction], plot: bool) -> None:
    """Write `front.json` (metrics, front, all points; paths from the folder on) and `front.png`.

    Args:
        folder: The folder of the checkpoints.
        points: All validations; those with a path are the front.
        metrics: Direction by name; the first two are the axes of the plot, a third its colour.
        plot: Whether to draw the picture, if matplotlib can be imported.
    """
    entries = [_as_json(point, folder) for point in points]
    content = {"metrics": dict(metrics), "front": [entry for entry in entries if entry["path"]], "points": entries}
    write_json(folder / FILE, content)
    if plot:
        on_front = np.array([point.path is not None for point in points])
        epochs = [point.epoch for point in points]
        try:
            draw_front(folder / PICTURE, values_of(points, metrics), on_front, epochs, metrics)
        except ImportError:
            pass
        except Exception as error:  # a picture must not end a training run
            give_warning(f"{PICTURE} was not drawn: {describe_error(error)}")


def read_points(folder: Path) -> list[ParetoPoint]:
    """Return the validations that `front.json` names; none where it is missing, empty or damaged, as after a kill."""
    try:
        content = json.loads(read_whole(folder / FILE))
        return [_from_json(entry, folder) for entry in content["points"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def _from_json(entry: dict[str, Any], folder: Path) -> ParetoPoint:
    # JSON has no word for nan: null stands for it.
    values = {name: float("nan") if value is None else float(value) for name, value in entry["values"].items()}
    path = None if entry["path"] is None else folder / entry["path"]
    return ParetoPoint(int(entry["epoch"]), int(entry["step"]), values, path)


def _as_json(point: ParetoPoint, folder: Path) -> dict[str, Any]:
    path = None if point.path is None else os.path.relpath(point.path, folder)
    return {"epoch": point.epoch, "step": point.step, "values": dict(point.values), "path": path}
