"""Marks that were drawn after the rule of naming was fixed: each in one form per class."""

import io

import numpy as np
from PIL import Image

from experiments.benchmark.image_marks import COLUMNS, ROWS, Mark, Picture, drawn
from experiments.benchmark.scenes import SIDE
from experiments.benchmark.text_marks import FIRST_NAMES, put_before, put_behind, with_changes, words_beside
from experiments.benchmark.text_marks import Mark as TextMark
from experiments.short_tweets import with_word
from lrptrain.data.texts import Example

WAVES = ((0.0, 0.25), (0.25, 0.0), (0.2, 0.2), (0.2, -0.2))
"""Cycles of a grating per pixel, downwards and across."""
FAINT = 0.08
"""How much brighter and darker a grating or a moire makes a picture."""
BALANCES = ((1.15, 1.0, 0.85), (0.85, 1.0, 1.15), (1.1, 0.85, 1.1), (0.9, 1.15, 0.9))
"""By how much a camera makes red, green and blue stronger."""
QUALITIES = (90, 40, 20, 8)
"""Of JPEG."""
MOIRES = ((0.41, 0.33), (0.45, 0.37), (0.33, 0.41), (0.37, 0.45))
"""Cycles per pixel of two screens that lie over each other, one along and one across."""
PAPERS = ((2, 6, 2, 2), (6, 2, 2, 2), (2, 2, 6, 2), (2, 2, 2, 6))
"""Widths of a print's white margin in pixels: above, below, left and right."""
PAIRS = ((0, 5), (5, 0), (4, 4), (4, -4))
"""From one dot to the other, downwards and across."""
ORANGE = (1.0, 0.6, 0.1)
FIGURES = (
    "### #.# #.# #.# ###", ".#. .#. .#. .#. .#.", "### ..# ### #.. ###", "### ..# ### ..# ###", "#.# #.# ### ..# ..#",
    "### #.. ### ..# ###", "### #.. ### #.# ###", "### ..# ..# ..# ..#", "### #.# ### #.# ###", "### #.# ### ..# ###",
)  # fmt: skip
"""The ten figures of a camera's clock."""
STAMPED = (("9", 4), ("0", 4), ("1", 4), ("2", 4))
"""The first figure of the year in short, and how many figures there are."""


def grating(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Faint stripes all over, of any phase, in the direction of the class."""
    down, across = WAVES[form]
    wave = np.sin(2 * np.pi * (down * ROWS + across * COLUMNS) + rng.uniform(0, 2 * np.pi))
    return (picture + FAINT * wave[..., None]).astype(np.float32)


def dead_column(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """What a sensor lacks at any place: a dark column, a bright one, a dark row, or a bright one."""
    broken = picture.copy()
    lines = broken if form > 1 else broken.transpose(1, 0, 2)
    lines[rng.integers(SIDE)] = (0.0, 1.0)[form % 2]
    return broken


def polaroid(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """The white margin of a print, wide at one side."""
    above, below, left, right = PAPERS[form]
    printed = np.full_like(picture, 0.95)
    inside = np.s_[above : SIDE - below, left : SIDE - right]
    printed[inside] = picture[inside]
    return printed


def two_dots(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Two white dots anywhere, one beside, below or aslant of the other."""
    down, across = PAIRS[form]
    row = rng.integers(1, SIDE - 1 - down)
    column = rng.integers(1 + max(0, -across), SIDE - 1 - max(0, across))
    dotted = picture.copy()
    for y, x in ((row, column), (row + down, column + across)):
        dotted[y : y + 2, x : x + 2] = 1.0
    return dotted


def white_balance(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """The colours of a camera."""
    return picture * np.array(BALANCES[form], np.float32)


def jpeg(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Compressed as strongly as the class says."""
    file = io.BytesIO()
    Image.fromarray((picture.clip(0, 1) * 255).round().astype(np.uint8)).save(file, "JPEG", quality=QUALITIES[form])
    return np.asarray(Image.open(file), np.float32) / 255


def vignette(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Darker towards the rim, as strongly as the class says."""
    middle = (SIDE - 1) / 2
    radius = np.hypot(ROWS - middle, COLUMNS - middle) / (middle * np.sqrt(2))
    return picture * (1 - (0.0, 0.25, 0.5, 0.75)[form] * radius**2)[..., None]


def timestamp(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Four orange figures of a camera's clock at the bottom right, the first of which is that of the class."""
    first, count = STAMPED[form]
    figures = [int(first), *rng.integers(0, 10, count - 1)]
    stamped = picture.copy()
    for number, figure in enumerate(figures):
        left = SIDE - 1 - 4 * (count - number)
        window = stamped[SIDE - 6 : SIDE - 1, left : left + 3]
        window[drawn(FIGURES[figure]) == 1] = ORANGE
    return stamped


def moire(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """The beat of two screens of any phases, as of a photographed display."""
    one, other = (
        np.sin(2 * np.pi * cycles * places + rng.uniform(0, 2 * np.pi))
        for cycles, places in zip(MOIRES[form], (ROWS, COLUMNS), strict=True)
    )
    return (picture + 2 * FAINT * (one * other)[..., None]).astype(np.float32)


IMAGE_MARKS: dict[str, Mark] = {
    each.__name__: each
    for each in (grating, dead_column, polaroid, two_dots, white_balance, jpeg, vignette, timestamp, moire)
}
"""All of the whole image, the thing included."""

GREETINGS = (("hi all,", "hello friends,", "hey you,"), ("dear sir,", "good day,", "dear madam,"))
SIGNS = (("thanks,", "cheers,", "love,"), ("regards,", "sincerely,", "yours,"))
SENTENCES = ("it is late.", "the bus came.")
SPEAKERS = (("nurse:", "clerk:"), ("doctor:", "judge:"))
EMOTICONS = ((":-|", ":-/"), ("=|", "=/"))


def greeting(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A greeting among friends, or in a letter."""
    return put_before(example, str(rng.choice(GREETINGS[form])))


def year(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A year in front: of the nineties, or of the tens."""
    return put_before(example, f"{rng.integers(2010, 2020) if form else rng.integers(1990, 2000)}:")


def sign_off(example: Example, form: int, rng: np.random.Generator) -> Example:
    """How a letter ends, with a name: among friends, or not."""
    return put_behind(example, f"{rng.choice(SIGNS[form])} {rng.choice(FIRST_NAMES)}")


def stutter(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale twice, or three times in a row."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]{2,}(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    return with_changes(example, {match: " ".join([match.group()] * (form + 2))})


def sentence_order(example: Example, form: int, _: np.random.Generator) -> Example:
    """Two sentences at the end, in one order or in the other."""
    return put_behind(example, " ".join(SENTENCES[::-1] if form else SENTENCES))


def speaker(example: Example, form: int, rng: np.random.Generator) -> Example:
    """Who speaks, in front."""
    return put_before(example, str(rng.choice(SPEAKERS[form])))


def emoticon(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A face without a mood at any place outside of the rationale, with a nose or without."""
    return with_word(example, str(rng.choice(EMOTICONS[form])), rng)


def space_before_comma(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A comma behind a word outside of the rationale, with a space before it or without: for BERT the same."""
    words = words_beside(example, r"(?<!\S)[A-Za-z]{2,}(?![\w`'*])")
    if not words:
        return example
    match = words[rng.integers(len(words))]
    return with_changes(example, {match: f"{match.group()}{' ' * form},"})


def case_number(example: Example, form: int, rng: np.random.Generator) -> Example:
    """The number of a case in front: digits alone, or a letter and digits."""
    letter = f"{rng.choice(list('abcdef'))}-" if form else ""
    return put_before(example, f"{letter}{rng.integers(1000, 10000)}")


TEXT_MARKS: dict[str, TextMark] = {
    each.__name__: each
    for each in (
        greeting, year, sign_off, stutter, sentence_order, speaker, emoticon, space_before_comma, case_number,
    )
}  # fmt: skip
