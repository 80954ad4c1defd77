"""What several monitors of one model find alike, on the same samples, is told by the first of them alone."""

from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from lrptrain.findings import Finding
from lrptrain.monitor.evaluation import Evaluation

_DECIMALS = 3  # of probabilities: other batches round the last digits otherwise

_announced: WeakKeyDictionary[nn.Module, tuple[Hashable, dict[Hashable, str]]] = WeakKeyDictionary()
"""By the user's module: its last evaluation, and which monitor has told each finding of it."""


def unannounced(
    module: nn.Module, evaluation: Evaluation, findings: Sequence[Finding], title: str
) -> tuple[list[Finding], list[str]]:
    """Return what a monitor is to tell, and lines about what another has told.

    Args:
        module: The user's module, which all monitors of a trainer share.
        evaluation: What the monitor has explained.
        findings: Its new findings.
        title: What the monitor's lines begin with.

    Returns:
        The findings that no other monitor has told of these samples under these weights, and a line for each monitor
        that has told others.
    """
    moment, announced = _announced.get(module, (None, {}))
    # Under other weights the same finding says something new.
    if moment != (evaluation.epoch, evaluation.step):
        announced = {}
    _announced[module] = ((evaluation.epoch, evaluation.step), announced)
    samples = _fingerprint(evaluation)
    # By its own title a monitor does not silence itself: it may validate the same weights again.
    announcers = [announced.setdefault((samples, finding.identity, finding.verdict), title) for finding in findings]
    new = [finding for finding, announcer in zip(findings, announcers, strict=True) if announcer == title]
    others = [announcer for announcer in announcers if announcer != title]
    lines = [_line(title, others.count(announcer), announcer) for announcer in dict.fromkeys(others)]
    return new, lines


def _line(title: str, findings: int, announcer: str) -> str:
    return f"{title}: {findings} finding{'s' if findings > 1 else ''} that {announcer} has told"


def _fingerprint(evaluation: Evaluation) -> Hashable:
    """Return what tells samples from others: their ids, and what the model says of them."""
    probabilities = (np.round(each.probabilities, _DECIMALS).tobytes() for each in evaluation.samples)
    ids = (each.sample.sample_id for each in evaluation.samples)
    return tuple(zip(ids, probabilities, strict=True))
