"""Which runs there are: those that thresholds are chosen on, and those that are tested."""

from dataclasses import dataclass

CLEAN = "none"


@dataclass(frozen=True)
class Case:
    """One training run.

    Attributes:
        task: "images" or "texts".
        shortcut: What is planted; "none" in a clean run.
        correlation: Share (0..1) of the samples that show their own class's shortcut.
        seed: Of data, order, weights and the monitors' samples.
    """

    task: str
    shortcut: str
    correlation: float
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.task} | {self.shortcut} | {self.correlation:g} | seed {self.seed}"


def _cases(task: str, shortcuts: tuple[str, ...], correlations: tuple[float, ...], first_seed: int) -> list[Case]:
    """Every shortcut at every correlation, and as many clean runs, all with seeds of their own."""
    planted = [(shortcut, correlation) for shortcut in shortcuts for correlation in correlations]
    pairs = planted + [(CLEAN, 1.0)] * len(planted)
    return [Case(task, *pair, first_seed + number) for number, pair in enumerate(pairs)]


CALIBRATION = [
    *_cases("images", ("both", "watermark"), (0.8, 0.9, 1.0), 1000),
    *_cases("texts", ("punctuation",), (0.8, 0.9, 1.0), 1100),
]
TEST = [
    *_cases("images", ("tag", "background", "border", "position"), (0.8, 0.9, 0.95, 1.0), 0),
    *_cases("texts", ("token",), (0.8, 0.9, 0.95, 1.0), 100),
]
