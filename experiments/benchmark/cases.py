"""Which runs there are: kinds of shortcut, and clean runs of two sorts."""

from dataclasses import dataclass

DEVELOPMENT = {"images": ("tag", "tint", "frame"), "texts": ("word", "punctuation")}
"""They show that everything runs, and no table holds them."""
IMAGE_KINDS = (
    "redaction", "dust", "shadow", "ghost", "bubbles", "ruler", "fog", "depth",
    "streak", "aperture", "glare", "hair", "clouds", "tiled", "halo", "caliper", "interlace", "saturation",
    "viewfinder", "truncated", "tube", "grass", "panning", "surface", "box", "channels", "grain", "bayer",
    "legend", "perforation", "pen", "cursor", "rain", "backdrop", "holder", "label", "toned", "readout",
)  # fmt: skip
"""Kinds that somebody devised who did not know what would look for them; see `image_marks.py`."""
TEXT_KINDS = (
    "hedge", "date", "tags", "handle", "language", "misspelt",
    "link", "units", "deidentified", "transcript", "hashtag", "broken",
    "forwarded", "retweet", "citation", "escaped", "elongated", "quotes",
)  # fmt: skip
"""Likewise; see `text_marks.py`."""
NO_MARK = "no mark"
CORRELATIONS = (1.0, 0.95, 0.9, 0.8, 0.65)
"""Shares of samples with the mark of their own class; the last ones are weak."""
IMAGE_TASKS = ("digits", "photographs")
FIRST = 1300
"""The number of the first round: rounds before are those of earlier monitors."""


@dataclass(frozen=True)
class Case:
    """One training run.

    Attributes:
        task: "digits", "photographs" or "texts".
        kind: The mark, or `NO_MARK`.
        correlation: Share (0..1) of the samples that show the mark of their own class; None where each shows that of
            any class, whatever its own.
        seed: The number of the round.
        number: The number of the run in its round; with the seed, it seeds everything random.
    """

    task: str
    kind: str
    correlation: float | None
    seed: int
    number: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        related = "unrelated" if self.correlation is None else f"{self.correlation:g}"
        return f"{self.task} | {self.kind} | {related} | seed {self.seed} | run {self.number}"

    @property
    def randomness(self) -> int:
        """The seed of everything random in the run."""
        return 1000 * self.seed + self.number


def development() -> list[Case]:
    """A run of every kind that was developed on, and a clean one of each sort and task."""
    plan = [("digits", "tag", 0.9), ("photographs", "tint", 0.9), ("digits", "frame", 0.9), ("texts", "word", 0.9)]
    plan += [("texts", "punctuation", 0.9), ("digits", NO_MARK, None), ("photographs", "tag", None)]
    plan += [("texts", NO_MARK, None), ("texts", "word", None)]
    return [Case(task, kind, correlation, 99, number) for number, (task, kind, correlation) in enumerate(plan)]


def planned(kinds: tuple[str, ...], rounds: int) -> list[Case]:
    """All runs of so many rounds, planted and clean ones in turn: wherever it stops, it is balanced.

    Args:
        kinds: `IMAGE_KINDS` or `TEXT_KINDS`.
        rounds: In each, every kind is planted once, and as many runs are clean.
    """
    tasks = ("texts",) if kinds is TEXT_KINDS else IMAGE_TASKS
    return [case for seed in range(FIRST, FIRST + rounds) for case in _round(seed, kinds, tasks)]


def _round(seed: int, kinds: tuple[str, ...], tasks: tuple[str, ...]) -> list[Case]:
    """Every kind, each followed by a clean run: without marks, or with marks of any class, in turn."""
    what: list[tuple[str, str, float | None]] = []
    for place, kind in enumerate(kinds):
        what.append((tasks[(seed + place) % len(tasks)], kind, CORRELATIONS[(seed + place) % len(CORRELATIONS)]))
        mark = kinds[(seed + place) % len(kinds)] if place % 2 else NO_MARK
        what.append((tasks[(seed + place // 2 + place % 2) % len(tasks)], mark, None))
    return [Case(*each, seed, number) for number, each in enumerate(what)]
