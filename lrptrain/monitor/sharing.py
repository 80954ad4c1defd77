"""What every process scored, brought together in an order that does not depend on their number."""

from collections.abc import Sequence
from dataclasses import replace

from lrptrain.batch import Sample
from lrptrain.monitor.drawing import shown_first
from lrptrain.monitor.evaluate import Scored
from lrptrain.trainers.processes import gather, gather_to_first, rank_and_size


def share_scored(mine: Sequence[Scored], error: str, most: int) -> tuple[list[Scored], list[Scored], str]:
    """Bring what each process scored together, in an order that does not depend on their number.

    Args:
        mine: What this process scored.
        error: Why it could not, or "".
        most: How many samples are shown.

    Returns:
        All samples, without inputs and annotations; those to show, complete, in the first process; and why a process
        failed, or "": then there are no samples.
    """
    parts = gather(([replace(one, sample=replace(one.sample, tensors={})) for one in mine], error))
    failed = next((f"{why} (process {rank})" for rank, (_, why) in enumerate(parts) if why), "")
    if failed:
        return [], [], failed
    everything = sorted((one for part, _ in parts for one in part), key=_order)
    shown = [_place(one) for one in shown_first(everything, most)]
    complete = {_place(one): one for part in gather_to_first(_among(mine, shown)) for one in part}
    return everything, [complete[place] for place in shown if place in complete], ""


def share_samples(mine: Sequence[Sample]) -> tuple[list[Sample], list[int]]:
    """Bring all samples together with their inputs, in the order of `share_scored`; and which of them are `mine`."""
    rank = rank_and_size()[0]
    parts = [[(sample, owner) for sample in part] for owner, part in enumerate(gather(list(mine)))]
    everything = sorted((pair for part in parts for pair in part), key=lambda pair: _sample_order(pair[0]))
    return [sample for sample, _ in everything], [i for i, (_, owner) in enumerate(everything) if owner == rank]


def _place(one: Scored) -> tuple[int, int | str]:
    return one.sample.label, one.sample.sample_id


def _order(one: Scored) -> tuple[int, str, int | str]:
    return _sample_order(one.sample)


def _sample_order(sample: Sample) -> tuple[int, str, int | str]:
    """By class, then by id; ids of both kinds have an order, too."""
    return sample.label, type(sample.sample_id).__name__, sample.sample_id


def _among(mine: Sequence[Scored], places: Sequence[tuple[int, int | str]]) -> list[Scored]:
    wanted = set(places)
    return [one for one in mine if _place(one) in wanted]
