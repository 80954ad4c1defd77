"""A text as a picture: its words on the colours of their relevance, for slides and papers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import ArrayLike

from lrptrain.extras import require
from lrptrain.render.colors import INK, MUTED, PAPER
from lrptrain.render.sheet import GAP, broken_lines, font_of
from lrptrain.render.text import noted, painted_words

WIDTH = 720
_SIZE = 16


def token_picture(
    tokens: Sequence[str], scores: Float[np.ndarray, " tokens"], scored: ArrayLike | None = None, width: int = WIDTH
) -> UInt8[np.ndarray, "height width 3"]:
    """The text as `token_html` shows it, in lines of at most `width` pixels; arguments and errors as there."""
    font, small = font_of(_SIZE), font_of(_SIZE - 4)
    words = painted_words(tokens, scores, scored)
    places, bottom = _placed([(text, space) for text, space, _ in words], font, width)
    notes = [line for note in noted(tokens, scores, scored) for line in broken_lines(note, width - 2 * GAP, small)]
    height = bottom + _line(font) + _line(small) * len(notes) + GAP
    picture = require("PIL.Image", "monitor").new("RGB", (width, height), PAPER)
    draw = require("PIL.ImageDraw", "monitor").Draw(picture)
    for (text, _, color), (x, y) in zip(words, places, strict=True):
        if color is not None:
            draw.rectangle((x, y, x + font.getlength(text), y + _line(font) - 3), color)
        draw.text((x, y), text, MUTED if color is None else INK, font)
    for number, line in enumerate(notes):
        draw.text((GAP, bottom + _line(font) + number * _line(small)), line, MUTED, small)
    return np.asarray(picture)


def _placed(words: Sequence[tuple[str, bool]], font: Any, width: int) -> tuple[list[tuple[int, int]], int]:
    """Return where each word begins, and the top of the last line."""
    x, y, places = GAP, GAP, []
    for text, space in words:
        wide, gap = int(font.getlength(text)), int(font.getlength(" ")) if space and x > GAP else 0
        if x + gap + wide > width - GAP and x > GAP:
            x, y, gap = GAP, y + _line(font), 0
        places.append((x + gap, y))
        x += gap + wide
    return places, y


def _line(font: Any) -> int:
    return int(1.5 * font.size)
