"""Which pairs there are: kinds of shortcut, each planted once."""

from dataclasses import dataclass
from itertools import chain, zip_longest

DEVELOPMENT = {"images": ("tag", "tint", "frame"), "texts": ("word", "punctuation")}
"""They show that everything runs, and no table holds them, nor any kind that a cue was tried on."""
IMAGE_KINDS = (
    "redaction", "dust", "bubbles", "fog", "aperture", "hair", "tiled", "halo", "caliper", "interlace", "viewfinder",
    "truncated", "tube", "grass", "panning", "surface", "box", "bayer", "legend", "perforation", "cursor", "rain",
    "backdrop", "holder", "label", "readout",
)  # fmt: skip
"""Kinds that somebody devised who did not know what would look for them; see `image_marks.py`."""
TEXT_KINDS = (
    "hedge", "date", "tags", "handle", "language", "misspelt",
    "link", "units", "deidentified", "transcript", "hashtag", "broken",
    "forwarded", "retweet", "citation", "escaped", "elongated", "quotes",
)  # fmt: skip
"""Likewise; see `text_marks.py`."""
FRESH = {
    "images": (
        "grating", "dead_column", "polaroid", "two_dots", "white_balance", "jpeg", "vignette", "timestamp", "moire",
    ),
    "texts": (
        "greeting", "year", "sign_off", "stutter", "sentence_order", "speaker", "emoticon", "space_before_comma",
        "case_number",
    ),
}  # fmt: skip
"""Kinds that were drawn after the rule of naming was fixed, and before their code; see `fresh_marks.py`."""
NO_MARK = "no mark"
CORRELATIONS = (1.0, 0.95, 0.9, 0.8, 0.7)
"""Shares of samples with the mark of their own class; the last ones are weak."""
IMAGE_TASKS = ("digits", "photographs")
PRETRAINED = {"pets": IMAGE_KINDS[:24:4], "moods": TEXT_KINDS[::4]}
"""Every fourth kind on larger networks: TinyViT on pets, beside which a label has no room, MPNet on tweets."""
SEED = 3000


@dataclass(frozen=True)
class Case:
    """Images or texts with a mark, on which three models are trained.

    Attributes:
        task: "digits", "photographs", "texts", "pets" or "moods".
        kind: The mark, or `NO_MARK`.
        correlation: Share (0..1) of the samples that show the mark of their own class.
        number: With the seed, it seeds everything random.
    """

    task: str
    kind: str
    correlation: float
    number: int

    @property
    def key(self) -> str:
        """Names the pair in the results."""
        return f"{self.task} | {self.kind} | {self.correlation:g}"

    @property
    def randomness(self) -> int:
        """The seed of everything random in the pair."""
        return 1000 * SEED + self.number


def development() -> list[Case]:
    """A pair of each task, of kinds that were developed on."""
    plan = [("digits", "tag"), ("photographs", "tint"), ("texts", "word")]
    return [Case(task, kind, 0.95, 900 + number) for number, (task, kind) in enumerate(plan)]


def planned() -> list[Case]:
    """A pair of every kind; texts and images in turn, so that it is balanced wherever it stops."""
    images = [(IMAGE_TASKS[place % 2], kind) for place, kind in enumerate(IMAGE_KINDS)]
    texts = [("texts", kind) for kind in TEXT_KINDS]
    both = [each for each in chain(*zip_longest(images, texts)) if each is not None]
    # Seven apart, so that neighbours in the lists above have other correlations, in each task all of them.
    return [Case(*each, CORRELATIONS[7 * place % 5], place) for place, each in enumerate(both)]


def fresh() -> list[Case]:
    """A pair of every kind that was drawn late, as `planned` has them."""
    images = [(IMAGE_TASKS[place % 2], kind) for place, kind in enumerate(FRESH["images"])]
    both = [pair for pairs in zip(images, [("texts", kind) for kind in FRESH["texts"]], strict=True) for pair in pairs]
    return [Case(*each, CORRELATIONS[7 * place % 5], 200 + place) for place, each in enumerate(both)]


def pretrained() -> list[Case]:
    """Pairs on larger networks, all with the mark of the class in 95 % of the samples; the tasks in turn."""
    tasks = ([(task, kind) for kind in some] for task, some in PRETRAINED.items())
    both = [each for each in chain(*zip_longest(*tasks)) if each is not None]
    return [Case(*each, 0.95, 100 + place) for place, each in enumerate(both)]
