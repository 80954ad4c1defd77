"""Many pictures on one, and the font of what is written on them."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from lrptrain.extras import require
from lrptrain.render.colors import INK, PAPER

GAP = 8
"""Pixels between pictures, and around a text."""
_FILE = "mpl-data/fonts/ttf/DejaVuSans.ttf"
"""What matplotlib brings has Greek, Cyrillic, Arabic and accents; pillow's own font has none of them."""


@lru_cache(maxsize=16)
def font_of(size: int) -> Any:
    """Return a font of pillow, of a height in pixels."""
    fonts = require("PIL.ImageFont", "monitor")
    found = find_spec("matplotlib")
    folders = () if found is None else (found.submodule_search_locations or ())
    file = next((path for folder in folders if (path := Path(folder) / _FILE).is_file()), None)
    return fonts.load_default(size=size) if file is None else fonts.truetype(str(file), size)


def contact_sheet(
    pictures: Sequence[UInt8[np.ndarray, "_height _width 3"]], captions: Sequence[str], columns: int = 4
) -> UInt8[np.ndarray, "height width 3"]:
    """The pictures in rows, each over its caption.

    Args:
        pictures: At least one, of any sizes.
        captions: One per picture; broken into lines to fit below it.
        columns: Pictures in a row.

    Returns:
        In [0, 255].

    Raises:
        ValueError: If there is no picture, or the number of captions differs.
    """
    if not pictures:
        raise ValueError("a contact sheet needs at least one picture")
    width = max(picture.shape[1] for picture in pictures)
    font = font_of(max(13, width // 16))
    lines = [broken_lines(caption, width, font) for caption in captions]
    cells = [_cell(picture, caption, width, font) for picture, caption in zip(pictures, lines, strict=True)]
    # 5 cells in 4 columns are rows of 4 and 1, and all rows have the width of 4.
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return np.vstack([_row(row, min(columns, len(cells))) for row in rows])


def stacked(pictures: Sequence[UInt8[np.ndarray, "_height _width 3"]]) -> UInt8[np.ndarray, "height width 3"]:
    """The pictures one below the other, at the left."""
    return np.vstack([_margined(picture, pictures) for picture in pictures])


def _margined(picture: np.ndarray, pictures: Sequence[np.ndarray]) -> np.ndarray:
    """The picture in a margin, as wide as the widest of all."""
    width = max(each.shape[1] for each in pictures) + GAP
    cell = np.full((picture.shape[0] + GAP, width, 3), PAPER, dtype=np.uint8)
    cell[GAP // 2 : GAP // 2 + picture.shape[0], GAP // 2 : GAP // 2 + picture.shape[1]] = picture
    return cell


def _cell(picture: UInt8[np.ndarray, "_height _width 3"], lines: list[str], width: int, font: Any) -> np.ndarray:
    """The picture over its lines, in a margin on all sides."""
    line_height = round(1.3 * font.size)
    size = (width + GAP, picture.shape[0] + len(lines) * line_height + GAP)
    cell = require("PIL.Image", "monitor").new("RGB", size, PAPER)
    draw = require("PIL.ImageDraw", "monitor").Draw(cell)
    cell.paste(require("PIL.Image", "monitor").fromarray(np.ascontiguousarray(picture)), (GAP // 2, GAP // 2))
    for row, line in enumerate(lines):
        # 2 pixels between the picture and the first line.
        position = (GAP // 2, GAP // 2 + picture.shape[0] + 2 + row * line_height)
        draw.text(position, line, fill=INK, font=font)
    return np.asarray(cell)


def _row(cells: list[np.ndarray], columns: int) -> np.ndarray:
    """The cells side by side, filled up to the height of the tallest and to the number of columns."""
    height = max(cell.shape[0] for cell in cells)
    width = cells[0].shape[1]
    row = np.full((height, columns * width, 3), PAPER, dtype=np.uint8)
    for index, cell in enumerate(cells):
        row[: cell.shape[0], index * width : (index + 1) * width] = cell
    return row


def broken_lines(caption: str, width: int, font: Any) -> list[str]:
    """The caption in lines of at most `width` pixels, broken at spaces; a longer word is cut."""
    lines: list[str] = []
    for word in caption.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(_cut(word, width, font))
    return lines


def _cut(word: str, width: int, font: Any) -> str:
    if font.getlength(word) <= width:
        return word
    while word and font.getlength(f"{word}…") > width:
        word = word[:-1]
    return f"{word}…"
