"""Judge suspicions by interventions on the sample, in all processes together."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from lrptrain.batch import Sample
from lrptrain.findings import Effect
from lrptrain.intervention import InterventionConfig, Region, effects
from lrptrain.monitor.evaluate import Scored
from lrptrain.monitor.suspects import Suspect
from lrptrain.relevance.preserve import unwrap
from lrptrain.trainers.failures import described
from lrptrain.trainers.processes import gather


class Holding(NamedTuple):
    """The whole sample, in the order of what was scored.

    Attributes:
        samples: All, with their inputs and annotations.
        mine: Which of them this process computes.
    """

    samples: list[Sample]
    mine: list[int]


def intervene(
    model: nn.Module,
    holding: Holding,
    scored: Sequence[Scored],
    suspects: Sequence[Suspect],
    config: InterventionConfig,
    device: torch.device | str = "cpu",
    forward_context: Callable[[], AbstractContextManager] = nullcontext,
) -> list[Effect | str]:
    """What the interventions did to the samples of every suspect, or why they could not be made.

    Every process takes part, with the same suspects; each region is changed once, in all samples that any suspect
    needs it in.

    Args:
        model: In evaluation mode.
        holding: The whole sample.
        scored: What was scored, by row.
        suspects: What to test.
        config: How to intervene.
        device: Where the model is.
        forward_context: Entered around forward passes (autocast).
    """
    probabilities = np.stack([one.probabilities for one in scored])
    found: dict[Region, Effect | str] = {}
    for region in dict.fromkeys(suspect.region for suspect in suspects):
        rows = np.unique(np.concatenate([suspect.rows for suspect in suspects if suspect.region == region]))
        mine = [row for row in holding.mine if row in set(rows.tolist())]
        measure = partial(
            effects,
            unwrap(model),
            holding.samples,
            rows=rows,
            computed_rows=mine,
            region=region,
            probabilities=probabilities,
            grid=scored[rows[0]].grid,
            config=config,
            device=device,
            forward_context=forward_context,
        )
        found[region] = _together(measure, mine, len(scored))
    return [_of(found[suspect.region], suspect) for suspect in suspects]


def _together(measure: Callable[[], tuple[np.ndarray, np.ndarray]], mine: list[int], count: int) -> Effect | str:
    """One region's effects from all processes; a failure in one befalls all alike."""
    error, own = "", (np.empty(0), np.empty(0))
    try:
        own = measure()
    except ValueError as refused:
        error = str(refused)
    except Exception as failure:
        error = f"the intervention failed: {described(failure)}"
    parts = gather((mine, own, error))
    failed = next((why for _, _, why in parts if why), "")
    if failed:
        return failed
    change, control = np.full(count, np.nan), np.full(count, np.nan)
    for rows, (moved, by_chance), _ in parts:
        change[rows], control[rows] = moved, by_chance
    return Effect(change, control)


def _of(effect: Effect | str, suspect: Suspect) -> Effect | str:
    return effect if isinstance(effect, str) else Effect(effect.change[suspect.rows], effect.control[suspect.rows])
