"""What every process explained, gathered in an order that does not depend on their number."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lrptrain.batch import Sample
from lrptrain.monitor.drawing import choose_displayed, choose_in_turn
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.trainers.processes import gather, gather_to_first, rank_and_size


class GatheredSamples(NamedTuple):
    """What all processes explained.

    Attributes:
        explained: All samples, without inputs and annotations; none if a process failed.
        displayed: The samples to draw, complete, in the first process; none in the others.
        error: Why a process failed, or "".
        left_out: Why samples were left out, by their ids, in all processes.
    """

    explained: list[ExplainedSample]
    displayed: list[ExplainedSample]
    error: str
    left_out: dict[int | str, str]


class GatheredInputs(NamedTuple):
    """The samples of all processes with inputs and annotations, in the order of `GatheredSamples.explained`.

    Attributes:
        samples: All samples.
        local_rows: The indices of those that this process explains and intervenes on.
    """

    samples: list[Sample]
    local_rows: list[int]


def ids_to_draw(local: Sequence[Sample], max_displayed: int) -> set[int | str]:
    """Return the ids of the samples that will be drawn, if all can be explained; every process must call it."""
    # In the order of `gather_explained`, so that both choose the same.
    keys = sorted(key for part in gather([_sort_key(sample) for sample in local]) for key in part)
    return {keys[i][2] for i in choose_in_turn([label for label, _, _ in keys], max_displayed)}


def gather_explained(
    local: Sequence[ExplainedSample], error: str, max_displayed: int, left_out: Mapping[int | str, str] | None = None
) -> GatheredSamples:
    """Gather the explained samples of all processes; every process must call it, also one that failed.

    Args:
        local: What this process explained.
        error: Why it could not, or "".
        max_displayed: The number of samples to draw.
        left_out: Why this process left samples out, by their ids.
    """
    # Inputs stay where they are: only maps and scores travel to all processes.
    light = [replace(each, sample=replace(each.sample, tensors={}), class_maps={}) for each in local]
    parts = gather((light, error, left_out or {}))
    problems = {sample_id: problem for _, _, part in parts for sample_id, problem in part.items()}
    first_error = next((f"{why} (process {rank})" for rank, (_, why, _) in enumerate(parts) if why), "")
    if first_error:
        return GatheredSamples([], [], first_error, problems)
    # Two processes have samples 0, 2, 4 and 1, 3, 5, a single one has 0 to 5: sorted, both give the same rows, and so
    # the same bootstrap resamples, donors, tables and findings.
    explained = sorted((each for part, _, _ in parts for each in part), key=lambda each: _sort_key(each.sample))
    keys = [_sort_key(each.sample) for each in choose_displayed(explained, max_displayed)]
    # Only the first process draws, and needs the inputs of what it draws.
    mine = [each for each in local if _sort_key(each.sample) in set(keys)]
    complete = {_sort_key(each.sample): each for part in gather_to_first(mine) for each in part}
    return GatheredSamples(explained, [complete[key] for key in keys if key in complete], "", problems)


def gather_inputs(local: Sequence[Sample]) -> GatheredInputs:
    """Gather the samples of all processes with their inputs; every process must call it."""
    rank = rank_and_size()[0]
    pairs = [(sample, owner) for owner, part in enumerate(gather(list(local))) for sample in part]
    # The same order as that of `gather_explained`, so that indices mean the same samples in both.
    pairs.sort(key=lambda pair: _sort_key(pair[0]))
    local_rows = [row for row, (_, owner) in enumerate(pairs) if owner == rank]
    return GatheredInputs([sample for sample, _ in pairs], local_rows)


def _sort_key(sample: Sample) -> tuple[int, str, int | str]:
    """Order by class, then by id; numbers come before strings, with which they cannot be compared."""
    return sample.label, type(sample.sample_id).__name__, sample.sample_id
