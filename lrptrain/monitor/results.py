"""What a monitor shows of its work to its user, under whichever trainer it runs."""

import html
from pathlib import Path

from lrptrain.findings import Finding, HasFindings, announce
from lrptrain.findings.sentences import headline
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.render.png import png_address
from lrptrain.render.view import display
from lrptrain.trainers.checks import check_counts

_STYLE = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:8px"


class MonitorResults(HasFindings):
    """The results of a monitor's core, as attributes of what a user attaches."""

    core: MonitorCore

    @property
    def findings(self) -> list[Finding]:  # type: ignore[override]
        """The findings of the last evaluation: what the model relies on, doubts, and what it relied on before."""
        return self.core.judging.findings or self.core.recorder.findings_of_others()

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
        return self.core.recorder.folder

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
        heading = "No evaluation yet." if epoch is None else f"Epoch {epoch}: {headline(self.findings)}"
        blocks = [
            f'<div style="{_STYLE};font-weight:600">{html.escape(heading)}</div>',
            *(finding._repr_html_() for finding in self.findings),
            f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(map(_sample, drawn))}</div>',
        ]
        display("".join(blocks), "\n\n".join([heading, *announce(self.findings), *(each.caption for each in drawn)]))


def _sample(drawn: Picture | Highlight) -> str:
    caption = f'<figcaption style="max-width:480px">{html.escape(drawn.caption)}</figcaption>'
    if isinstance(drawn, Highlight):
        return f'<figure style="margin:0;{_STYLE}">{drawn.html}{caption}</figure>'
    picture = f'<img src="{png_address(drawn.image)}" alt="{html.escape(drawn.caption)}" style="max-width:100%">'
    return f'<figure style="margin:0;{_STYLE}">{picture}{caption}</figure>'
