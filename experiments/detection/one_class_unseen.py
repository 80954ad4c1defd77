"""Kinds of marks that the findings were not developed on: drawn once, by someone who did not know the detectors.

Each is something that reaches one class only when its images come from another camera, scanner, clinic or site.
"""

import io
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

Picture = Float[np.ndarray, "side side 3"]
Mask = Float[np.ndarray, "side side 1"]
Mark = Callable[[Picture, np.random.Generator], Picture]
SIDE, FINE = 32, 8
"""Pixels of a side, and how many times finer shapes are drawn, for smooth edges."""
DIGITS = (
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
)  # fmt: skip
"""Three pixels by five each, row by row."""


def _shape(draw: Callable[[ImageDraw.ImageDraw], None]) -> Mask:
    """How much of each pixel a shape covers that is drawn `FINE` times larger."""
    fine = Image.new("L", (SIDE * FINE, SIDE * FINE))
    draw(ImageDraw.Draw(fine))
    small = fine.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32)[..., None] / 255


def _line(points: Float[np.ndarray, "n 2"]) -> Mask:
    """A thin line through points of the larger picture."""
    return _shape(lambda on: on.line([(float(x), float(y)) for x, y in points], fill=255, width=FINE * 5 // 4))


def _cover(picture: Picture, mask: Mask, colour: tuple[float, float, float]) -> Picture:
    """A colour over what the mask covers."""
    return (picture * (1 - mask) + mask * np.array(colour, np.float32)).astype(np.float32)


def _distance(row: float, column: float) -> Mask:
    """Of every pixel from a place."""
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    return np.hypot(rows - row, columns - column)[..., None]


def date_stamp(picture: Picture, rng: np.random.Generator) -> Picture:
    """Day and year in the orange digits of a compact camera, at the lower right; each image has its own date."""
    mask = np.zeros((SIDE, SIDE, 1), np.float32)
    day, year = rng.integers(1, 32), rng.integers(0, 100)
    for left, digit in zip((13, 17, 23, 27), f"{day:02d}{year:02d}", strict=True):
        bits = np.array([int(bit) for bit in DIGITS[int(digit)]], np.float32)
        mask[25:30, left : left + 3, 0] = bits.reshape(5, 3)
    return _cover(picture, 0.85 * mask, (1.0, 0.55, 0.15))


def sensor_dust(picture: Picture, _: np.random.Generator) -> Picture:
    """Three soft shadows of dust that lies on the sensor, at the same places in all images."""
    light = np.ones((SIDE, SIDE, 1), np.float32)
    for row, column, radius in ((8, 21, 3.0), (13, 6, 2.4), (23, 17, 2.7)):
        light *= 1 - 0.7 * np.exp(-((_distance(row, column) / radius) ** 2))
    return picture * light


def hair(picture: Picture, rng: np.random.Generator) -> Picture:
    """Four to six dark curved hairs, anywhere and in any direction, as in pictures of skin."""
    mask = np.zeros((SIDE, SIDE, 1), np.float32)
    for _ in range(rng.integers(4, 7)):
        start, bend, end = (rng.uniform(0, SIDE * FINE, 2) for _ in range(3))
        # A short hair is drawn out to half the side, so that none is a mere dot.
        along = end - start
        end = start + along * max(1.0, SIDE * FINE / 2 / (np.linalg.norm(along) + 1e-6))
        steps = np.linspace(0, 1, 40)[:, None]
        curve = (1 - steps) ** 2 * start + 2 * steps * (1 - steps) * bend + steps**2 * end
        mask = np.maximum(mask, _line(curve))
    return _cover(picture, 0.9 * mask, (0.1, 0.06, 0.05))


def sticker(picture: Picture, rng: np.random.Generator) -> Picture:
    """A plain sticker anywhere, round, square or three-cornered, of any strong colour and of five to nine pixels."""
    colours = ((0.9, 0.2, 0.2), (0.2, 0.7, 0.3), (0.2, 0.35, 0.9), (0.95, 0.85, 0.2), (0.6, 0.25, 0.75))
    size = rng.uniform(5, 9) * FINE
    row, column = rng.uniform(size / 2, SIDE * FINE - size / 2, 2)
    corners = int(rng.choice([3, 4, 60]))
    turned = np.linspace(0, 2 * np.pi, corners, endpoint=False) + rng.uniform(0, 2 * np.pi)
    outline = [(column + size / 2 * np.cos(each), row + size / 2 * np.sin(each)) for each in turned]
    return _cover(picture, _shape(lambda on: on.polygon(outline, fill=255)), colours[rng.integers(len(colours))])


def finger(picture: Picture, rng: np.random.Generator) -> Picture:
    """A finger out of focus that reaches in from one of the four edges, of lighter or darker skin."""
    along, depth, width = rng.uniform(6, 26), rng.uniform(8, 12), rng.uniform(6, 8)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    far = np.hypot((columns - along) / width, rows / depth)
    soft = (1 / (1 + np.exp(12 * (far - 1))))[..., None]
    mask = np.rot90(soft, int(rng.integers(4)))
    skin = np.array([0.9, 0.6, 0.5]) * rng.uniform(0.5, 1.0)
    return _cover(picture, 0.95 * mask, (float(skin[0]), float(skin[1]), float(skin[2])))


def shadow_cast(picture: Picture, _: np.random.Generator) -> Picture:
    """Dark parts are lifted towards teal, as by a film or a filter; bright parts stay as they are."""
    dark = (1 - picture.mean(2, keepdims=True)) ** 2
    return (picture + dark * np.array([0.0, 0.11, 0.15], np.float32)).clip(0, 1)


def jpeg(picture: Picture, _: np.random.Generator) -> Picture:
    """Stored once more with strong JPEG compression: blocks of eight pixels and rings at edges."""
    stored = io.BytesIO()
    Image.fromarray((255 * picture).round().astype(np.uint8)).save(stored, "JPEG", quality=20)
    return np.asarray(Image.open(stored), np.float32) / 255


def quarter_turn(picture: Picture, _: np.random.Generator) -> Picture:
    """Lies on its side, as where a site drops the camera's note on which way is up. Nothing is added to the image."""
    return np.ascontiguousarray(np.rot90(picture))


UNSEEN: dict[str, Mark] = {
    each.__name__.replace("_", " "): each
    for each in (date_stamp, sensor_dust, hair, sticker, finger, shadow_cast, jpeg, quarter_turn)
}
