"""Explained samples as they are shown in a notebook, in a terminal and in files."""

import html
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch.nn import functional as F

from lrptrain.extras import require
from lrptrain.render.colors import NEGATIVE, OPACITY, POSITIVE, scale_text
from lrptrain.render.pair import titled
from lrptrain.render.png import png_address
from lrptrain.render.sheet import stacked
from lrptrain.render.text import WIDTH, token_ansi, token_html, token_picture, token_words, word_scores
from lrptrain.terminal import fitted, is_terminal

WIDTHS = (320, 4096)
"""Between these, the numbers of a scale stand whole, and a picture is no wider than a large screen."""
_WIDTH = 78  # characters: of a picture in a terminal
_STYLE = "font:14px/1.4 system-ui,sans-serif;color:#111;background:#fff;padding:8px"


@dataclass(frozen=True)
class SampleView:
    """One explained sample, as it is shown.

    Attributes:
        title: What is explained, as in "sample 3: target 'cat', p = 0.93".
        scores: Its relevance.
        pixels: The picture, with the map in it; None for a text.
        tokens: Names of the tokens of a text, one for each score.
        scored: Whether each token of a text is coloured, neither special nor padding; None where the names tell.
    """

    title: str
    scores: Float[np.ndarray, " tokens"]
    pixels: UInt8[np.ndarray, "height width 3"] | None = None
    tokens: Sequence[str] = ()
    scored: Sequence[bool] | None = None


def views_html(views: Sequence[SampleView], note: str = "", width: int | None = None) -> str:
    """Return the samples as a block of HTML that needs nothing else, the pictures in it."""
    parts = [_view_html(view, width) for view in views]
    footing = f'<div style="{_STYLE};color:#5c5c5c;font-size:12px">{html.escape(note)}</div>' if note else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(parts)}</div>{footing}'


def views_text(views: Sequence[SampleView], note: str = "", *, colored: bool) -> str:
    """Return the samples for a terminal: with 24-bit colour if it takes them, or in words."""
    fit = fitted if colored else str  # a file is searched by lines
    parts = []
    for view in views:
        if view.pixels is None:
            show = token_ansi if colored else token_words
            body = show(view.tokens, view.scores, scored=view.scored)
        else:
            scale = fit(_scale_words(view.scores))
            body = f"{_blocks(view.pixels)}\n{scale}" if colored else scale
        parts.append(f"{fit(view.title)}\n{body}")
    return "\n\n".join([*parts, *([fit(note)] if note else [])])


def display(page: str, text: str) -> None:
    """Show a block of HTML in a notebook; anywhere else, print the text."""
    if in_notebook():
        tools = require("IPython.display", "monitor")
        tools.display(tools.HTML(page))
    else:
        print(text)


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook, which shows HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def takes_color() -> bool:
    """Whether what is printed goes to a terminal with colours (https://no-color.org)."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def save_views(views: Sequence[SampleView], path: str | Path, width: int | None = None) -> None:
    """Save the samples as an HTML page or as a PNG; `width` as for `views_html`.

    Raises:
        ValueError: If the name ends in anything else, or the width is too small for a picture with its scale.
        ImportError: If a PNG is to be made without pillow.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".html", ".png"):
        raise ValueError(f"{file.name!r}: relevance is saved as .png, .html or .json")
    least, most = WIDTHS
    if width is not None and not (isinstance(width, int) and least <= width <= most):
        raise ValueError(f"width={width!r}: a picture with its scale has {least} to {most} pixels")
    if kind == ".html":
        page = f'<!doctype html>\n<meta charset="utf-8">\n<title>Relevance</title>\n{views_html(views, width=width)}\n'
        file.write_text(page, encoding="utf-8")
        return
    pictures = [titled(_pixels(view, width), _shown_scores(view), view.title)[0] for view in views]
    require("PIL.Image", "monitor").fromarray(stacked(pictures)).save(file)


def _pixels(view: SampleView, width: int | None) -> UInt8[np.ndarray, "height width 3"]:
    if view.pixels is None:
        return token_picture(view.tokens, view.scores, view.scored, width or WIDTH)
    if width is None:
        return view.pixels
    images = require("PIL.Image", "monitor")
    height = round(view.pixels.shape[0] * width / view.pixels.shape[1])
    return np.asarray(images.fromarray(view.pixels).resize((width, height), images.Resampling.LANCZOS))


def _shown_scores(view: SampleView) -> np.ndarray:
    """The relevance that has a colour: of a text, that of its words."""
    if view.pixels is not None:
        return view.scores
    return np.array([score for _, score in word_scores(view.tokens, view.scores, view.scored)])


def _view_html(view: SampleView, wide: int | None) -> str:
    scale = _scale_html(_shown_scores(view))
    if view.pixels is None:
        size = f";max-width:{wide}px" if wide else ""
        text = token_html(view.tokens, view.scores, title=view.title, scored=view.scored)
        return f'<div style="background:#fff{size}">{text}<div style="{_STYLE};padding-top:0">{scale}</div></div>'
    width = wide or view.pixels.shape[1]
    return (
        f'<figure style="margin:0;{_STYLE}"><figcaption style="max-width:{width}px">{html.escape(view.title)}'
        f'</figcaption><img src="{png_address(view.pixels)}" width="{width}" alt="{html.escape(view.title)}" '
        f'style="max-width:100%;display:block;margin:4px 0">{scale}</figure>'
    )


def _scale_html(scores: np.ndarray) -> str:
    """The bar of colours between the largest relevance against and for the class."""
    peak = float(np.abs(scores).max(initial=0.0))
    style = 'style="color:#5c5c5c;font-size:12px;display:flex;align-items:center;gap:6px"'
    if peak == 0:
        return f"<div {style}>no relevance: the map is 0 everywhere</div>"
    red, blue = (f"rgba({r},{g},{b},{OPACITY})" for r, g, b in (POSITIVE, NEGATIVE))
    signed = bool((scores < 0).any())
    colors = f"{blue},#fff,{red}" if signed else f"#fff,{red}"
    bar = f'<span style="width:96px;height:10px;background:linear-gradient(to right,{colors})"></span>'
    before = f"against -{scale_text(peak)}" if signed else "0"
    return f"<div {style}>{before}{bar}+{scale_text(peak)} for the class</div>"


def _scale_words(scores: np.ndarray) -> str:
    """Which share of the relevance speaks for the class, and how large the largest is."""
    size = np.abs(scores).sum()
    if size == 0:
        return "no relevance: the map is 0 everywhere"
    positive = scores[scores > 0].sum() / size
    strongest = int(np.abs(scores).argmax())
    return (
        f"{positive:.0%} of the relevance speaks for the class (red), {1 - positive:.0%} against it (blue); the "
        f"largest, {scale_text(float(scores[strongest]))}, at token {strongest}"
    )


def _blocks(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """A picture of half blocks: each character is two pixels, one above the other."""
    height, width, _ = pixels.shape
    columns = min(_WIDTH, width)
    rows = max(2, round(height * columns / width / 2) * 2)
    values = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None].float()
    small: Any = F.interpolate(values, (rows, columns), mode="area")[0].round().byte().permute(1, 2, 0).tolist()
    lines = [
        "".join(f"\x1b[38;2;{_code(top)};48;2;{_code(low)}m\u2580" for top, low in zip(above, below, strict=True))
        for above, below in zip(small[::2], small[1::2], strict=True)
    ]
    return "\n".join(f"{line}\x1b[0m" for line in lines)


def _code(color: Sequence[int]) -> str:
    return ";".join(map(str, color))
