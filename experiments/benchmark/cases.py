"""Which runs there are: kinds of shortcut that were developed on, those that were not, and clean runs of two sorts."""

from collections.abc import Iterator
from dataclasses import dataclass

IMAGE_KINDS = (
    "sticker",
    "stripes",
    "blur",
    "jpeg",
    "salt",
    "caption",
    "light",
    "vignette",
    "size",
    "place",
    "pair",
    "turned",
)
"""Of images; no monitor was developed on them before the first two tests."""
TEXT_KINDS = ("prefix", "name", "symbol", "order", "number", "doubled")
"""Of texts, likewise."""
DEVELOPMENT = {"images": ("tag", "tint", "frame"), "texts": ("word", "punctuation")}
"""Those that the findings were built on: they show that everything runs, and no table holds them."""
DEVELOPED_SINCE = ("stripes", "blur", "salt", "light", "vignette", "size", "place")
"""Kinds that findings were built for after the second test, or for what is near them."""
NEW_IMAGE_KINDS = ("scratch", "fringe", "ring", "grid")
"""Of images, drawn for the fifth test before any detector had seen them."""
UNTOUCHED = ("jpeg", "pair", "turned", *NEW_IMAGE_KINDS)
"""Kinds that no finding was built for, or for what is near them, when the fifth test began: its headline."""
TOUCHED = tuple(kind for kind in IMAGE_KINDS if kind not in UNTOUCHED)
"""The other kinds of images: some finding was built for them or for what is near them."""
UNSEEN = ("redaction", "dust", "shadow", "ghost", "bubbles", "ruler", "fog", "depth")
"""Of images, drawn for the sixth test by somebody who did not know the detectors' code, unseen by who wrote it."""
SEVENTH = (
    "streak",
    "aperture",
    "glare",
    "hair",
    "clouds",
    "tiled",
    "halo",
    "caliper",
    "interlace",
    "saturation",
)
"""Of images, drawn for the seventh test by somebody who did not know the detectors' code."""
UNSEEN_TEXTS = ("hedge", "date", "tags", "handle", "language", "misspelt")
"""Of texts, drawn for a test of texts alone by somebody who did not know the detectors' code."""
EIGHTH = (
    "viewfinder",
    "truncated",
    "tube",
    "grass",
    "panning",
    "surface",
    "box",
    "channels",
    "grain",
    "bayer",
)
"""Of images, drawn for the eighth test by somebody who did not know the detectors."""
EIGHTH_TEXTS = ("link", "units", "deidentified", "transcript", "hashtag", "broken")
"""Of texts, likewise."""
NINTH = (
    "legend",
    "perforation",
    "pen",
    "cursor",
    "rain",
    "backdrop",
    "holder",
    "label",
    "toned",
    "readout",
)
"""Of images, drawn by lot for the ninth test from a list by somebody who did not know the detectors' code."""
NINTH_TEXTS = ("forwarded", "retweet", "citation", "escaped", "elongated", "quotes")
"""Of texts, likewise."""
NO_MARK = "no mark"
CORRELATIONS = (1.0, 0.95, 0.9, 0.8, 0.65)
"""Shares of samples with the mark of their own class; the last ones are weak."""
CLEAN_IMAGES, CLEAN_TEXTS, CLEAN_UNSEEN, CLEAN_SEVENTH, SEEDS = 3, 2, 4, 5, 10
"""Clean runs of a seed without marks, and as many with marks that tell nothing."""
CLEAN_UNSEEN_TEXTS = 3
"""Those of a seed in the test of unseen kinds of texts."""
IMAGE_TASKS = ("digits", "photographs")


@dataclass(frozen=True)
class Case:
    """One training run.

    Attributes:
        task: "digits", "photographs" or "texts".
        kind: The mark, or `NO_MARK`.
        correlation: Share (0..1) of the samples that show the mark of their own class; None where each shows that of
            any class, whatever its own.
        seed: The number of the round: 0..9 in the first test, from 10 on in the second one, from 20 on in the
            third one, from 100 on in the one of texts alone, from 200 on in the one of images alone, from 300 on in
            the one of unseen kinds, from 400 on in the one of unseen kinds once more, from 500 on in the one of unseen
            kinds of texts, from 900 on in the eighth one, from 1000 on in the eighth one of texts, from 1100 on in the
            ninth one, from 1200 on in the ninth one of texts.
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


def planned(seeds: int = SEEDS, first: int = 0) -> list[Case]:
    """All runs of so many seeds, those of a seed in a mixed order: wherever it stops, it is balanced."""
    return [case for seed in range(first, first + seeds) for case in _round(seed)]


def planned_texts(seeds: int, first: int) -> list[Case]:
    """Those of so many seeds that are of texts."""
    return [case for case in planned(seeds, first) if case.task == "texts"]


def planned_images(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the fifth test, of images alone, planted and clean ones in turn."""
    return [case for seed in range(first, first + seeds) for case in _round_of_images(seed)]


def _round_of_images(seed: int) -> list[Case]:
    """Every kind of the headline, three of the others in turn, three clean runs without marks and three with some."""
    images = ("digits", "photographs")
    touched = [TOUCHED[(3 * seed + place) % len(TOUCHED)] for place in range(3)]
    planted = [
        (images[(seed + place) % 2], kind, CORRELATIONS[(seed + place) % len(CORRELATIONS)])
        for place, kind in enumerate((*UNTOUCHED, *touched))
    ]
    clean: list[tuple[str, str, float | None]] = []
    for place in range(CLEAN_IMAGES):
        clean.append((images[(seed + place) % 2], NO_MARK, None))
        clean.append((images[(seed + place + 1) % 2], UNTOUCHED[(CLEAN_IMAGES * seed + place) % len(UNTOUCHED)], None))
    what = [*planted, *clean]
    mixed = sorted(enumerate(what), key=lambda pair: (7 * pair[0]) % 17)  # planted and clean ones in turn
    return [Case(*each, seed, number) for number, each in mixed]


def planned_unseen(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the sixth test, of unseen kinds of images, planted and clean ones in turn."""
    return [case for seed in range(first, first + seeds) for case in _round_of_unseen(seed, UNSEEN, CLEAN_UNSEEN)]


def planned_seventh(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the seventh test, of other unseen kinds, planted and clean ones in turn."""
    return [case for seed in range(first, first + seeds) for case in _round_of_unseen(seed, SEVENTH, CLEAN_SEVENTH)]


def planned_unseen_texts(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the test of unseen kinds of texts, planted and clean ones in turn."""
    return [
        case
        for seed in range(first, first + seeds)
        for case in _round_of_unseen(seed, UNSEEN_TEXTS, CLEAN_UNSEEN_TEXTS, ("texts",))
    ]


def planned_eighth(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the eighth test, of still other unseen kinds, planted and clean ones in turn."""
    return [case for seed in range(first, first + seeds) for case in _round_of_unseen(seed, EIGHTH, CLEAN_SEVENTH)]


def planned_eighth_texts(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the eighth test on texts, of other unseen kinds, planted and clean ones in turn."""
    return [
        case
        for seed in range(first, first + seeds)
        for case in _round_of_unseen(seed, EIGHTH_TEXTS, CLEAN_UNSEEN_TEXTS, ("texts",))
    ]


def planned_ninth(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the ninth test, of kinds that are unseen again, planted and clean ones in turn."""
    return [case for seed in range(first, first + seeds) for case in _round_of_unseen(seed, NINTH, CLEAN_SEVENTH)]


def planned_ninth_texts(seeds: int, first: int) -> list[Case]:
    """All runs of so many seeds of the ninth test on texts, of kinds that are unseen again, likewise in turn."""
    return [
        case
        for seed in range(first, first + seeds)
        for case in _round_of_unseen(seed, NINTH_TEXTS, CLEAN_UNSEEN_TEXTS, ("texts",))
    ]


def _round_of_unseen(
    seed: int, kinds: tuple[str, ...], clean_runs: int, tasks: tuple[str, ...] = IMAGE_TASKS
) -> list[Case]:
    """Every kind, so many clean runs without marks and as many with some: a planted one, a clean one, and so on."""
    what: list[tuple[str, str, float | None]] = []
    for place, kind in enumerate(kinds):
        what.append((tasks[(seed + place) % len(tasks)], kind, CORRELATIONS[(seed + place) % len(CORRELATIONS)]))
        if place >= 2 * clean_runs:
            continue
        turn = seed + place // 2
        if place % 2:
            mark = kinds[(clean_runs * seed + place // 2) % len(kinds)]
            what.append((tasks[(turn + 1) % len(tasks)], mark, None))
        else:
            what.append((tasks[turn % len(tasks)], NO_MARK, None))
    return [Case(*each, seed, number) for number, each in enumerate(what)]


def _round(seed: int) -> list[Case]:
    mixed = sorted(enumerate(_what(seed)), key=lambda pair: (7 * pair[0]) % 29)  # planted and clean ones in turn
    return [Case(*what, seed, number) for number, what in mixed]


def _what(seed: int) -> Iterator[tuple[str, str, float | None]]:
    """Task, kind and correlation: over ten seeds every kind of image meets every data set in every correlation."""
    images = ("digits", "photographs")
    for place, kind in enumerate(IMAGE_KINDS):
        yield images[(seed + place) % 2], kind, CORRELATIONS[(seed + place) % len(CORRELATIONS)]
    for place, kind in enumerate(TEXT_KINDS):
        yield "texts", kind, CORRELATIONS[(seed + place) % len(CORRELATIONS)]
    for place in range(CLEAN_IMAGES):
        yield images[(seed + place) % 2], NO_MARK, None
        yield images[(seed + place + 1) % 2], IMAGE_KINDS[(CLEAN_IMAGES * seed + place) % len(IMAGE_KINDS)], None
    for place in range(CLEAN_TEXTS):
        yield "texts", NO_MARK, None
        yield "texts", TEXT_KINDS[(CLEAN_TEXTS * seed + place) % len(TEXT_KINDS)], None
