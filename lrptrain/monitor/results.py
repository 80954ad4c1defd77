"""What a monitor shows of its work to its user, under whichever trainer it runs."""

from pathlib import Path

from lrptrain.findings import ExplainedSample, Finding
from lrptrain.monitor.monitor import MonitorCore


class MonitorResults:
    """The results of a monitor's core, as attributes of what a user attaches.

    Attributes:
        core: What evaluates, finds and tests.
    """

    core: MonitorCore

    @property
    def findings(self) -> list[Finding]:
        """The findings of the last evaluation, those that were refuted included."""
        return self.core.findings

    @property
    def failures(self) -> int:
        """The number of the monitor's failures."""
        return self.core.failures.count

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        return self.core.folder

    @property
    def scored(self) -> list[ExplainedSample]:
        """The explained samples of the last evaluation, without inputs and annotations."""
        return self.core.scored
