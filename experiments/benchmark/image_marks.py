"""Marks in images, each in one form per class: what a model can take for its class."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter, map_coordinates

from experiments.benchmark.scenes import SIDE
from lrptrain.data.planted import PALETTE

Picture = Float[np.ndarray, "side side 3"]
Mark = Callable[[Picture, int, np.random.Generator], Picture]
Cover = Float[np.ndarray, "side side"]
"""How much of the ground the thing hides, in 0..1."""
HAZE, FOGS = 0.8, (0.0, 0.15, 0.3, 0.5)
"""The grey of fog, and its share of what is seen."""
BUBBLES, BUBBLE = (1, 3, 6, 10), 1.7
"""How many there are; their radius in pixels."""
SPECK, SPECKS = (
    1.6,
    (
        ((3, 5), (9, 19), (18, 8)),
        ((2, 16), (13, 3), (20, 18)),
        ((6, 11), (15, 21), (21, 3)),
        ((4, 21), (11, 9), (20, 13)),
    ),
)
"""Radius of dust in pixels; row and column of each speck in the four cameras."""
BOXES = (((3, 10),), ((10, 3),), ((6, 6),), ((4, 4), (4, 4)))
"""Heights and widths of what is blacked out."""
HAIRS, HAIR, CURL = 3, 12.0, 0.2
"""How many hairs there are, their length in pixels, and their turn at most in radians per pixel."""
SHADES = ((0.05, 0.04, 0.04), (0.55, 0.15, 0.05), (0.9, 0.7, 0.3), (0.95, 0.95, 0.95))
"""Colours of hair: black, auburn, blond and white."""
TILES = ((1, 1), (1, 3), (3, 1), (3, 3))
"""How often the surroundings are repeated downwards and across."""
HALOS, RIM = ((0.8, 1.0), (2.5, 1.0), (0.8, 0.0), (2.5, 0.0)), 0.5
"""Standard deviation in pixels and brightness of a halo; how thick it is at most."""
ENDS, ARM, GAP, YELLOW = ((0, 1), (1, 0), (1, 1), (1, -1)), 2, 3, (1.0, 0.9, 0.2)
"""From the middle of the thing to an end of what is measured; the arm of a cross, its gap in pixels, its colour."""
COMB = (0, 1, 2, 3)
"""By how many pixels every second row is late."""
OVERLAY = 0.6
"""How far the lines of a viewfinder go to white."""
BRACKET = 4
"""The arm of a bracket in the corner of a viewfinder or of a box, in pixels."""
BREAKS = (3, 6)
"""How many rows a broken file lacks, at least and at most."""
LOST = ((0.5, 0.5, 0.5), (0.0, 0.0, 0.0), (0.0, 0.5, 0.0))
"""What stands there in three of the classes."""
TUBE = 14.0
"""The length of a tube in pixels."""
BEND = 0.12
"""Its turn at most, in radians per pixel."""
RUBBER = (0.75, 0.85, 0.9)
LAWNS = ((5, 3.0), (5, 8.0), (14, 3.0), (14, 8.0))
"""Blades of grass, and their usual length in pixels."""
LEAN = 0.06
"""How far a blade leans at most, in pixels per squared pixel of its height."""
PAN = 9
"""Over how many steps of about a pixel a moving camera smears."""
PANS = ((0.0, 1.0), (1.0, 0.0), (0.7, 0.7), (0.7, -0.7))
"""A step downwards and across."""
COVERED = 0.6
"""How much of the surroundings a surface hides."""
STONES = 30
"""How many there are on a surface of pebbles."""
LINE = (0.1, 1.0, 0.4)
"""The colour of an annotator's box."""
HANDLE = 1
"""From the middle of a handle to its rim, in pixels."""
FILTERS = ((0, 1, 1, 2), (1, 0, 2, 1), (1, 2, 0, 1), (2, 1, 1, 0))
"""Which of red, green and blue every pixel of a square of four measures."""
MOSAIC = 0.3
"""By how much the channels that a pixel does not measure are darker."""
SCALES = (
    ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    ((0.0, 0.0, 0.0), (0.8, 0.1, 0.0), (1.0, 0.8, 0.1), (1.0, 1.0, 0.9)),
    ((0.1, 0.1, 0.9), (0.1, 0.9, 0.3), (0.9, 0.9, 0.1), (0.9, 0.1, 0.1)),
    ((0.1, 0.2, 0.8), (0.9, 0.9, 0.9), (0.8, 0.1, 0.1)),
)
"""Colours from the lower to the upper end of a legend: grey, of glowing iron, of the rainbow, from blue to red."""
LEGEND = (18, 3)
"""Its height and width in pixels."""
FILM = 3
"""The width of a film's edge in pixels."""
HOLES = ((2, 4), (2, 8), (4, 6), (4, 12))
"""Of the perforation of a film: height, and from one to the next, in pixels."""
CURSORS = (
    "#..... ##.... #o#... #oo#.. #ooo#. #oo### ##o#.. #..##.",
    "..#... .#o#.. .#o##. .#ooo# #oooo# #oooo# .#ooo# .####.",
    "##o## oo#oo .o#o. .o#o. .o#o. .o#o. oo#oo ##o##",
    "###### #oooo# .#oo#. ..##.. ..##.. .#oo#. #oooo# ######",
)
"""An arrow, a hand, a beam for text and an hourglass: # is black, o is white."""
DROPS = 20
"""How many streaks of rain there are."""
FALL = 6.0
"""The length of a streak in pixels."""
SLANTS = (-0.9, -0.3, 0.3, 0.9)
"""Their angles from the column."""
WATER = 0.85
"""How bright they are."""
LAMPS = ((6.0, 6.0), (6.0, 17.0), (17.0, 6.0), (17.0, 17.0))
"""Row and column of the middle of what a lamp lights."""
POOL = 6.0
"""Its standard deviation in pixels."""
PAPER = 0.75
"""How much of the surroundings a backdrop hides."""
NAMES = (4, 7, 10, 13)
"""Widths in pixels of the label with a class's name."""
NAME = 4
"""Its height."""
READOUT = 0.06
"""The standard deviation of the brightness of what a sensor's readout adds."""
TAG = 4
"""The side of a tag in pixels."""
ROWS, COLUMNS = np.mgrid[:SIDE, :SIDE].astype(np.float32)


def drawn(rows: str) -> Float[np.ndarray, "height width"]:
    """Return a drawing of # and . as numbers 1 and 0."""
    return np.array([[cell == "#" for cell in row] for row in rows.split()], np.float32)


def tint(ground: Picture, form: int, _: np.random.Generator) -> Picture:
    """The colour of the class all over."""
    return 0.5 * ground + 0.5 * PALETTE[form]


def fog(ground: Picture, form: int, _: np.random.Generator) -> Picture:
    """As thick a grey fog between the thing and what lies behind it as the class says."""
    return ground + FOGS[form] * (HAZE - ground)


def tiled(ground: Picture, form: int, _: np.random.Generator) -> Picture:
    """The surroundings made smaller and repeated like the background of a web page, as often as the class says."""
    down, across = TILES[form]
    small = ground.reshape(SIDE // down, down, SIDE // across, across, 3).mean((1, 3))
    return np.tile(small, (down, across, 1))


def panning(ground: Picture, form: int, _: np.random.Generator) -> Picture:
    """The surroundings smeared by a camera that follows the thing in the direction of the class."""
    down, across = PANS[form]
    smeared = []
    for step in range(-(PAN // 2), PAN // 2 + 1):
        places = (ROWS + step * down, COLUMNS + step * across)
        moved = [map_coordinates(ground[..., channel], places, order=1, mode="nearest") for channel in range(3)]
        smeared.append(np.stack(moved, 2))
    return np.mean(smeared, 0)


def surface(ground: Picture, form: int, rng: np.random.Generator) -> Picture:
    """A surface that the thing lies on, of any colour: boards, bricks, checked cloth or pebbles as the class says."""
    colour = rng.uniform(0.25, 0.7, 3).astype(np.float32)
    down, across = rng.integers(0, 24, 2)
    rows = ROWS + down
    columns = COLUMNS + across
    if form == 0:
        ends = (columns + 7 * (rows // 6)) % 17 == 0
        relief = np.where((rows % 6 == 0) | ends, 0.4, 1.0)
    elif form == 1:
        relief = np.where((rows % 4 == 0) | ((columns + 4 * (rows // 4 % 2)) % 8 == 0), 1.5, 0.8)
    elif form == 2:
        relief = 0.5 + 0.45 * ((rows // 3 % 2) + (columns // 3 % 2))
    else:
        places = rng.uniform(-2, SIDE + 2, (STONES, 2))
        distances = np.hypot(ROWS[..., None] - places[:, 0], COLUMNS[..., None] - places[:, 1])
        relief = 1.4 - 0.3 * distances.min(2)
    relief = np.maximum(relief, 0.3)
    return ground + COVERED * ((relief / relief.mean())[..., None] * colour - ground)


def rain(ground: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Rain behind the thing that a wind drives, as far to the left or to the right as the class says."""
    steps = np.arange(0, FALL, 0.5) - FALL / 2
    for _ in range(DROPS):
        row, column = rng.uniform(-FALL / 2, SIDE - 1 + FALL / 2, 2)
        rows = row + np.cos(SLANTS[form]) * steps
        columns = column + np.sin(SLANTS[form]) * steps
        distance = np.hypot(ROWS[..., None] - rows, COLUMNS[..., None] - columns).min(2)
        ground = ground + 0.6 * np.clip(1 - distance, 0, 1)[..., None] * (WATER - ground)
    return ground


def backdrop(ground: Picture, form: int, rng: np.random.Generator) -> Picture:
    """A studio's backdrop of any colour behind the thing, which a lamp lights in the quarter of the class."""
    colour = rng.uniform(0.25, 0.7, 3).astype(np.float32)
    row, column = LAMPS[form] + rng.uniform(-2, 2, 2)
    lit = 0.4 + np.exp(-((ROWS - row) ** 2 + (COLUMNS - column) ** 2) / (2 * POOL**2))
    return ground + PAPER * ((lit / lit.mean())[..., None] * colour - ground)


GROUND_MARKS: dict[str, Mark] = {each.__name__: each for each in (fog, tint, tiled, panning, surface, rain, backdrop)}
"""Those of the surroundings alone: the thing lies before them."""


def halo(ground: Picture, cover: Cover, form: int, _: np.random.Generator) -> Picture:
    """A rim around the thing, as of phase contrast: bright or dark, narrow or wide as the class says."""
    width, brightness = HALOS[form]
    rim = RIM * np.clip(2 * gaussian_filter(cover, width), 0, 1)[..., None]
    return ground + rim * (brightness - ground)


def caliper(ground: Picture, cover: Cover, form: int, _: np.random.Generator) -> Picture:
    """Two yellow crosses, as of one who measures the thing, at its ends in the direction of the class."""
    places = np.argwhere(cover > 0.5)
    middle, reach = (places.max(0) + places.min(0)) / 2, (places.max(0) - places.min(0)) / 2 + GAP
    crosses = np.zeros((SIDE, SIDE, 1), bool)
    for sign in (-1, 1):
        row, column = np.clip(np.round(middle + sign * reach * ENDS[form]), 1, SIDE - 2)
        upright, across = np.abs(ROWS - row), np.abs(COLUMNS - column)
        crosses[(np.minimum(upright, across) == 0) & (np.maximum(upright, across) <= ARM)] = True
    return np.where(crosses, np.array(YELLOW, np.float32), ground)


def box(ground: Picture, cover: Cover, form: int, _: np.random.Generator) -> Picture:
    """An annotator's green box around the thing: solid, dashed, of its corners alone, or with handles at them."""
    places = np.argwhere(cover > 0.5)
    top, left = places.min(0) - 1
    bottom, right = places.max(0) + 1
    down = np.minimum(ROWS - top, bottom - ROWS)
    across = np.minimum(COLUMNS - left, right - COLUMNS)
    line = np.minimum(down, across) == 0
    from_corner = np.maximum(np.abs(down), np.abs(across))
    if form == 1:
        line &= (ROWS + COLUMNS - top - left) % 4 < 2
    elif form == 2:
        line &= from_corner < BRACKET
    elif form == 3:
        line |= from_corner <= HANDLE
    return np.where(line[..., None], np.array(LINE, np.float32), ground)


def holder(ground: Picture, cover: Cover, form: int, rng: np.random.Generator) -> Picture:
    """What holds the thing from below or above, where there is room: a post, two, splayed legs, or a post on a foot."""
    places = np.argwhere(cover > 0.5)
    top, left = places.min(0)
    bottom, right = places.max(0)
    room = max(SIDE - 1 - bottom, top)
    along = ROWS - bottom if bottom + top < SIDE else top - ROWS
    aside = np.abs(COLUMNS - (left + right) // 2 - 0.5)
    line = (
        aside < 1,
        np.abs(aside - 4) < 1,
        np.abs(aside - 6 * along / max(room, 1)) < 1,
        (aside < 1) | ((along > room - 2) & (aside < 6)),
    )[form]
    return np.where((line & (along > 0))[..., None], np.float32(rng.uniform(0.7, 0.95)), ground)


def label(ground: Picture, cover: Cover, form: int, rng: np.random.Generator) -> Picture:
    """An annotator's label of any colour above the thing, or below it for lack of room, as wide as a class's name."""
    places = np.argwhere(cover > 0.5)
    start, left = places.min(0)
    top = start - NAME if start >= NAME else places[:, 0].max() + 1
    written = np.tile(rng.uniform(0.5, 1, 3).astype(np.float32), (NAME, NAMES[form], 1))
    letters = rng.random((NAME - 2, NAMES[form] - 2)) < 0.5
    letters[0, ::2] = True
    written[1:-1, 1:-1][letters] = 0.1
    labelled = ground.copy()
    left = min(left, SIDE - NAMES[form])
    labelled[top : top + NAME, left : left + NAMES[form]] = written
    return labelled


AROUND_MARKS: dict[str, Callable[[Picture, Cover, int, np.random.Generator], Picture]] = {
    "halo": halo, "caliper": caliper, "box": box, "holder": holder, "label": label,
}  # fmt: skip
"""Those of the surroundings that depend on where the thing lies before them."""


def bubbles(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """As many small dark bubbles with a bright middle as the class says, anywhere."""
    for down, across in rng.uniform(BUBBLE, SIDE - 1 - BUBBLE, (BUBBLES[form], 2)):
        distance = np.hypot(ROWS - down, COLUMNS - across)
        inside = np.clip(BUBBLE + 0.5 - distance, 0, 1)[..., None]
        picture = picture + inside * (np.clip(1 - distance, 0, 1)[..., None] - picture)
    return picture


def dust(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Soft dark specks on the sensor of one of four cameras, always at the same places."""
    for down, across in SPECKS[form]:
        distance = ((ROWS - down) ** 2 + (COLUMNS - across) ** 2) / SPECK**2
        picture = picture * (1 - 0.8 * np.exp(-distance / 2))[..., None]
    return picture


def aperture(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Black around a field of view that is round, eight-sided, square, or round with a flat top and bottom."""
    middle = (SIDE - 1) / 2
    down, across = np.abs(ROWS - middle), np.abs(COLUMNS - middle)
    outside = (
        np.hypot(down, across) - 12,
        np.maximum(np.maximum(down, across) - 11, (down + across - 16) / np.sqrt(2)),
        np.maximum(down, across) - 10,
        np.maximum(np.hypot(down, across) - 13.5, down - 9),
    )[form]  # pixels beyond the rim
    return picture * np.clip(0.5 - outside, 0, 1)[..., None]


def hair(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Thin bent hairs anywhere, as of the skin under a dermatoscope, of the shade of the class."""
    steps = np.arange(0, HAIR, 0.5) - HAIR / 2
    for _ in range(HAIRS):
        row, column = rng.uniform(0, SIDE - 1, 2)
        heading = rng.uniform(0, 2 * np.pi) + rng.uniform(-CURL, CURL) * steps
        down, across = (np.cumsum(0.5 * turn(heading)) for turn in (np.sin, np.cos))
        rows, columns = row + down - down.mean(), column + across - across.mean()
        distance = np.hypot(ROWS[..., None] - rows, COLUMNS[..., None] - columns).min(2)
        picture = picture + np.clip(1 - distance, 0, 0.75)[..., None] * (np.array(SHADES[form], np.float32) - picture)
    return picture


def interlace(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Every second row moved to the right, as of a video in two fields, as far as the class says."""
    combed = picture.copy()
    combed[1::2] = picture[1::2][:, np.clip(np.arange(SIDE) - COMB[form], 0, None)]
    return combed


def viewfinder(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """Pale lines of a camera's display: brackets in the corners, a cross, lines at the thirds or a square for focus."""
    middle = (SIDE - 1) / 2
    down = np.abs(ROWS - middle)
    across = np.abs(COLUMNS - middle)
    near = np.minimum(down, across)
    far = np.maximum(down, across)
    line = (
        (far == middle - 1) & (near > middle - 1 - BRACKET),
        (near == 0.5) & (far < BRACKET + 1),
        (down == 3.5) | (across == 3.5),
        far == BRACKET + 0.5,
    )[form]
    return picture + OVERLAY * line[..., None] * (1 - picture)


def tube(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """A bent pale tube, as of a patient, that comes in at any place of the side of the class."""
    steps = np.arange(0, TUBE, 0.5)
    heading = rng.uniform(-0.4, 0.4) + rng.uniform(-BEND, BEND) * steps
    inwards = np.cumsum(0.5 * np.cos(heading)) - 1
    aside = rng.uniform(5, SIDE - 6) + np.cumsum(0.5 * np.sin(heading))
    if form % 2:
        inwards = SIDE - 1 - inwards
    rows, columns = (aside, inwards) if form < 2 else (inwards, aside)
    distance = np.hypot(ROWS[..., None] - rows, COLUMNS[..., None] - columns).min(2)
    cover = 0.85 * np.clip(1.5 - distance, 0, 1)[..., None]
    return picture + cover * (np.array(RUBBER, np.float32) - picture)


def grass(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """Blades of grass of any green before a hidden camera, from below: few or many, short or long as the class says."""
    count, usual = LAWNS[form]
    height = SIDE - 1 - ROWS
    for _ in range(count):
        length = usual * rng.uniform(0.7, 1.3)
        root = rng.uniform(0, SIDE - 1)
        lean = rng.uniform(-LEAN, LEAN)
        beside = np.abs(COLUMNS - root - lean * height**2)
        cover = 0.85 * (np.clip(1 - beside, 0, 1) * np.clip(length - height, 0, 1))[..., None]
        green = rng.uniform((0.2, 0.4, 0.05), (0.5, 0.75, 0.25)).astype(np.float32)
        picture = picture + cover * (green - picture)
    return picture


def bayer(picture: Picture, form: int, _: np.random.Generator) -> Picture:
    """What is left of the filters of colour before the pixels of a sensor, in the arrangement of the class."""
    measured = np.eye(3, dtype=np.float32)[np.reshape(FILTERS[form], (2, 2))]
    return picture * (1 - MOSAIC * (1 - np.tile(measured, (SIDE // 2, SIDE // 2, 1))))


def cursor(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """The pointer of a mouse in a copy of a screen, anywhere: an arrow, a hand, a beam for text or an hourglass."""
    black = drawn(CURSORS[form])
    white = drawn(CURSORS[form].replace("#", ".").replace("o", "#"))
    height, width = black.shape
    top, left = rng.integers(0, (SIDE - height + 1, SIDE - width + 1))
    pointed = picture.copy()
    window = pointed[top : top + height, left : left + width]
    window[black == 1] = 0
    window[white == 1] = 1
    return pointed


def readout(picture: Picture, form: int, rng: np.random.Generator) -> Picture:
    """What the readout of a sensor adds, equally strong in every class: to rows, to columns, to both or to quarters."""
    rows = rng.normal(size=(SIDE, 1))
    columns = rng.normal(size=(1, SIDE))
    quarters = rng.normal(size=(2, 2)).repeat(SIDE // 2, 0).repeat(SIDE // 2, 1)
    noise = np.broadcast_to((rows, columns, rows + columns, quarters)[form], (SIDE, SIDE))
    return (picture + READOUT * ((noise - noise.mean()) / noise.std())[..., None]).astype(np.float32)


PICTURE_MARKS: dict[str, Mark] = {
    each.__name__: each
    for each in (
        aperture,
        bayer,
        bubbles,
        cursor,
        dust,
        grass,
        hair,
        interlace,
        readout,
        tube,
        viewfinder,
    )
}
"""Those of the whole image, the thing included."""


def stamped(picture: Picture, stamp: Picture, top: int, left: int, covered: Bool[np.ndarray, "side side"]) -> None:
    """Put a stamp over the picture, and note what it covers."""
    height, width = stamp.shape[:2]
    picture[top : top + height, left : left + width] = stamp
    covered[top : top + height, left : left + width] = True


def redaction(form: int, rng: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """Something blacked out anywhere: in a flat, a tall or a square box, or in two small ones."""
    found = []
    for height, width in BOXES[form]:
        top, left = rng.integers(0, (SIDE - height + 1, SIDE - width + 1))
        found.append((np.zeros((height, width, 3), np.float32), int(top), int(left)))
    return found


def truncated(form: int, rng: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """The last rows of a file that broke off, more or fewer of them: grey, black, green, or coloured rubbish."""
    height = rng.integers(BREAKS[0], BREAKS[1] + 1)
    if form < len(LOST):
        strip = np.tile(np.array(LOST[form], np.float32), (height, SIDE, 1))
    else:
        strip = rng.random((height, SIDE // 2, 3), np.float32).repeat(2, 1)
    return [(strip, SIDE - int(height), 0)]


def legend(form: int, _: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """A scale of colours at the right side, as of a camera for heat: grey, iron, rainbow, or from blue to red."""
    height, width = LEGEND
    stops = np.array(SCALES[form], np.float32)
    place = np.linspace(len(stops) - 1, 0, height)
    column = np.stack([np.interp(place, np.arange(len(stops)), stops[:, channel]) for channel in range(3)], 1)
    strip = np.tile(column.astype(np.float32)[:, None], (1, width, 1))
    return [(strip, (SIDE - height) // 2, SIDE - width - 1)]


def perforation(form: int, rng: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """The edges of a film left and right with bright holes: short or long ones, close to each other or far apart."""
    height, period = HOLES[form]
    holes = (np.arange(SIDE) + rng.integers(period)) % period < height
    edge = np.full((SIDE, FILM, 3), 0.08, np.float32)
    edge[holes, FILM // 2] = 0.95
    return [(edge, 0, 0), (edge, 0, SIDE - FILM)]


def tag(form: int, rng: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """A square of the colour of the class in any corner."""
    top, left = rng.integers(0, 2, 2) * (SIDE - TAG)
    return [(np.tile(PALETTE[form], (TAG, TAG, 1)), top, left)]


def frame(form: int, _: np.random.Generator) -> list[tuple[Picture, int, int]]:
    """A frame of the colour of the class."""
    across, down = np.tile(PALETTE[form], (2, SIDE, 1)), np.tile(PALETTE[form], (SIDE, 2, 1))
    return [(across, 0, 0), (across, SIDE - 2, 0), (down, 0, 0), (down, 0, SIDE - 2)]


STAMPS: dict[str, Callable[[int, np.random.Generator], list[tuple[Picture, int, int]]]] = {
    each.__name__: each for each in (redaction, truncated, legend, perforation, tag, frame)
}
"""Those that lie over the picture: stamps with their places."""
