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
# Those that were missed before, or are new, each with a clean run behind it; then the others.
_LENGTHS = [Case("texts", "length", 1.0, 200), Case("texts", "length", 0.9, 201)]
_MISSED = [case for case in reversed(TEST) if case.shortcut == "background"]
_CLEAN = [case for case in TEST if case.shortcut == CLEAN and case.seed in (16, 17, 18, 19, 104, 105)]
AGAIN = [case for pair in zip([*_MISSED, *_LENGTHS], _CLEAN, strict=True) for case in pair]
AGAIN += [case for case in reversed(TEST) if case not in AGAIN and case.shortcut != CLEAN]
"""The shortcuts of the test once more, a length, and fewer clean runs, for the monitor as it is by default."""
