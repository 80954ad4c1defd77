"""What a monitor shows of its work to its user, under whichever trainer it runs."""

from pathlib import Path

from lrptrain.findings import Finding, HasFindings
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.monitor.showing import evaluation_html, evaluation_text
from lrptrain.render.view import display
from lrptrain.trainers.checks import check_counts


class MonitorResults(HasFindings):
    """The results of a monitor's core, as attributes of what a user attaches.

    Attributes:
        core: What evaluates, finds and tests.
    """

    core: MonitorCore

    @property
    def findings(self) -> list[Finding]:  # type: ignore[override]
        """The findings of the last evaluation: what the model reads, doubts about faults, and what it read before."""
        return self.core.findings

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars of the last evaluation, by the keys under which they are logged; the same in all processes."""
        return dict(self.core.recorder.scalars)

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
        return self.core.recorder.scored

    def show(self, max_samples: int = 4) -> None:
        """Show the last evaluation: what was found, and samples beside their maps; in words outside a notebook.

        Args:
            max_samples: Most samples that are shown; 0 for what was found alone.

        Raises:
            ValueError: If the number is negative.
        """
        check_counts(0, max_samples=max_samples)
        drawn = self.core.recorder.drawn[:max_samples]
        epoch = self.core.planner.evaluated_epoch
        display(evaluation_html(epoch, self.findings, drawn), evaluation_text(epoch, self.findings, drawn))
