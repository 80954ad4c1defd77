"""What the monitor's work costs, and which share of the run that is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lrptrain.loggers.metrics import COST, LoggedMetric

COST_METRICS = (
    LoggedMetric(("seconds",), "Seconds per evaluation", COST, unit="seconds", kept="mean,max,last"),
    LoggedMetric(("cost_share",), "Share of the run", COST, bounds=(0, 1), kept="mean,max,last"),
)


class Clock:
    """Counts the monitor's own seconds between the points that it logs."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._untold = 0.0

    def start(self, anew: bool = False) -> None:
        """Start, if it does not run or shall start anew."""
        if self._since is None or anew:
            self._since, self._untold = time.monotonic(), 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time inside as the monitor's own."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._untold += time.monotonic() - started

    def costs(self, started: float) -> dict[str, float]:
        """Of the work since the last call, within one `timed` work that `started` then; that of the rest is told next.

        Returns:
            `relevance/seconds`, and `relevance/cost_share` of the time since the last call, in 0..1.
        """
        now = time.monotonic()
        seconds = now - started + self._untold
        since = self._since if self._since is not None else started
        self._since, self._untold = now, started - now  # `timed` adds all of this work
        return {"relevance/seconds": seconds, "relevance/cost_share": seconds / max(now - since, 1e-9)}
