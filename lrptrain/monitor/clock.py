"""What the monitor's work costs, and which share of the run that is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lrptrain.loggers.metrics import COST, LoggedMetric

COST_METRICS = (
    LoggedMetric(
        ("seconds",),
        "Seconds per evaluation",
        COST,
        unit="seconds",
        kept="mean,max,last",
        explanation="Time that the monitor took since its last point.",
    ),
    LoggedMetric(
        ("cost_share",),
        "Share of the run",
        COST,
        bounds=(0, 1),
        kept="mean,max,last",
        explanation="The monitor's share of the time since its last point.",
    ),
)


class Clock:
    """Counts the monitor's own seconds between the points that it logs."""

    def __init__(self) -> None:
        self._last_point: float | None = None
        self._began: float | None = None
        self._elapsed_before = 0.0  # seconds of the run that this one goes on from
        self._unlogged = 0.0  # seconds of the monitor since the last point

    def start(self, restart: bool = False) -> None:
        """Start the clock if it does not run, or start it again."""
        if self._last_point is None or restart:
            self._last_point = self._began = time.monotonic()
            self._unlogged = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since training began, those before it was resumed included."""
        return self._elapsed_before + (0.0 if self._began is None else time.monotonic() - self._began)

    def stop(self) -> None:
        """Count no time until the clock starts again: a trainer may go on with the same run later."""
        self._elapsed_before = self.elapsed
        self._began = None

    def resume(self, elapsed: float) -> None:
        """Go on from a run that had taken so many seconds."""
        self._elapsed_before = elapsed

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time inside as the monitor's own."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._unlogged += time.monotonic() - started

    def costs(self, started: float) -> dict[str, float]:
        """Return the cost since the last call, within `timed` work that began at `started`.

        The rest of that work belongs to the next point.

        Returns:
            `relevance/seconds`, and `relevance/cost_share`, its share in [0, 1] of the time since the last call.
        """
        now = time.monotonic()
        seconds = now - started + self._unlogged
        last_point = self._last_point if self._last_point is not None else started
        self._last_point = now
        self._unlogged = started - now  # negative: `timed` will add all of this work, of which a part is logged now
        return {"relevance/seconds": seconds, "relevance/cost_share": seconds / max(now - last_point, 1e-9)}
