"""Relevance over text: for a page, a terminal, Markdown, or as a picture for slides and papers."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import ArrayLike

from lrptrain.extras import require
from lrptrain.render.colors import INK, MUTED, NEGATIVE, OPACITY, PAPER, POSITIVE
from lrptrain.render.sheet import GAP, broken_lines, font_of
from lrptrain.render.words import Word, join_words, scored_tokens

WIDTH = 720
"""Pixels of a picture."""
_SIZE = 16
_GREY = "38;2;136;136;136"
_MOST_NAMES = 3
_MOST_STRONGEST = 5
_NOTHING = "no relevance on any word"
_OF_PIECES = "The colour of a word is the sum over its pieces."


class _Shaded(NamedTuple):
    """A word with its relevance."""

    word: Word
    weight: float
    """Relevance, summed over its tokens, over the largest magnitude of a scored word, in [-1, 1]; 0 if not scored."""
    share: float
    """Its tokens' share of all relevance by magnitude, in [0, 1]."""


def token_html(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    title: str | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text as a block of HTML: red for relevance, blue for negative relevance, the rationale underlined.

    Tokens that are not scored, such as `[CLS]`, are grey, and a line below says which share of the relevance they hold.

    Args:
        tokens: Tokens as the tokenizer names them; word pieces (`##ing`, `Ġword`, `▁word`) are joined to words.
        scores: Relevance of each token; nan counts as none. A word has the sum of its pieces.
        rationale: 1 evidence, 0 not, 255 ignored, for each token.
        title: A line above.
        scored: Whether each token is neither special nor ignored; by default `scored_tokens`.

    Returns:
        One `<div>`; all text in it is escaped.

    Raises:
        ValueError: If the lengths differ.
    """
    heading = "" if title is None else f'<div style="font-weight:600;margin-bottom:4px">{html.escape(title)}</div>'
    shaded = _shaded(tokens, scores, rationale, scored)
    body = "".join(_span(each) for each in shaded)
    footing = "".join(
        f'<div style="color:#767676;font-size:80%">{html.escape(note)}</div>' for note in _notes(shaded, " (grey)")
    )
    style = "font:15px/1.7 system-ui,sans-serif;color:#111;background:#fff;padding:8px"
    return f'<div style="{style}">{heading}<div dir="auto">{body}</div>{footing}</div>'


def token_ansi(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text for a terminal with 24-bit colour, in the colours of `token_html`; arguments and errors as there.

    A second line says which share of the relevance the grey tokens hold.
    """
    shaded = _shaded(tokens, scores, rationale, scored)
    notes = (f"\n\x1b[{_GREY}m{note}\x1b[0m" for note in _notes(shaded, " (grey)"))
    return "".join(_painted(each) for each in shaded) + "".join(notes)


def token_markdown(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text in Markdown: words bold from half of the largest relevance on, those of the rationale in brackets 「」.

    For pages that show no colour. Arguments and errors as in `token_html`.
    """
    shaded = _shaded(tokens, scores, rationale, scored)
    notes = (f"\n\n{_escaped(note)}" for note in _notes(shaded))
    return " ".join(_marked(group) for group in _close_together(shaded)) + "".join(notes)


def token_words(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text as it is, and its strongest words in words, where nothing shows colours.

    Arguments and errors as in `token_html`.
    """
    shaded = _shaded(tokens, scores, rationale, scored)
    text = "".join(f"{' ' if each.word.space else ''}{each.word.text}" for each in shaded)
    strongest = sorted((each for each in shaded if each.weight), key=lambda each: -abs(each.weight))[:_MOST_STRONGEST]
    listed = ", ".join(f"{each.word.text} {each.weight:+.2f}" for each in strongest)
    lines = [text, *([f"strongest (+ for the class, - against it): {listed}"] if listed else [])]
    return "\n".join([*lines, *_notes(shaded)])


def token_picture(
    tokens: Sequence[str], scores: Float[np.ndarray, " tokens"], scored: ArrayLike | None = None, width: int = WIDTH
) -> UInt8[np.ndarray, "height width 3"]:
    """The text as `token_html` shows it, in lines of at most `width` pixels; arguments and errors as there."""
    font, small = font_of(_SIZE), font_of(_SIZE - 4)
    shaded = _shaded(tokens, scores, None, scored)
    places, bottom = _placed([each.word for each in shaded], font, width)
    notes = [line for note in _notes(shaded, " (grey)") for line in broken_lines(note, width - 2 * GAP, small)]
    height = bottom + _line(font) + _line(small) * len(notes) + GAP
    picture = require("PIL.Image", "monitor").new("RGB", (width, height), PAPER)
    draw = require("PIL.ImageDraw", "monitor").Draw(picture)
    for each, (x, y) in zip(shaded, places, strict=True):
        text, is_scored = each.word.text, each.word.scored
        if is_scored:
            draw.rectangle((x, y, x + font.getlength(text), y + _line(font) - 3), _on_white(each))
        draw.text((x, y), text, INK if is_scored else MUTED, font)
    for number, line in enumerate(notes):
        draw.text((GAP, bottom + _line(font) + number * _line(small)), line, MUTED, small)
    return np.asarray(picture)


def word_scores(tokens: Sequence[str], scores: ArrayLike, scored: ArrayLike | None) -> list[tuple[str, float]]:
    """Return the words of a text that are scored, each with the sum of its tokens' relevance."""
    values = np.nan_to_num(np.asarray(scores, dtype=float), posinf=0.0, neginf=0.0)
    words = (each.word for each in _shaded(tokens, scores, None, scored))
    return [(word.text, float(values[list(word.places)].sum())) for word in words if word.scored]


def _on_white(shaded: _Shaded) -> tuple[int, int, int]:
    """Return the colour of a word: the strongest one is 75 % colour and 25 % white, as on the page."""
    alpha = abs(shaded.weight) * OPACITY
    red, green, blue = (round(255 + alpha * (channel - 255)) for channel in _color(shaded.weight))
    return red, green, blue


def _shaded(
    tokens: Sequence[str], scores: ArrayLike, rationale: ArrayLike | None, scored: ArrayLike | None
) -> list[_Shaded]:
    values = np.nan_to_num(np.asarray(scores, dtype=float), posinf=0.0, neginf=0.0)
    annotation = np.zeros(len(tokens)) if rationale is None else np.asarray(rationale)
    if not len(tokens) == len(values) == len(annotation):
        raise ValueError(f"{len(tokens)} tokens have {len(values)} scores and a rationale of {len(annotation)}")
    coloured = scored_tokens(tokens, rationale) if scored is None else np.asarray(scored, dtype=bool)
    if len(coloured) != len(tokens):
        raise ValueError(f"scored must say of {len(tokens)} tokens whether they are, not of {len(coloured)}")
    words = join_words(tokens, coloured.tolist(), (annotation == 1).tolist())
    # Relevance [9, 0.5, -0.25] of [CLS] good day: the weights are [0, 1, -0.5], the shares [0.92, 0.05, 0.03].
    sums = np.array([values[list(word.places)].sum() if word.scored else 0.0 for word in words])
    # Where all relevance is 0, so are all weights: dividing by 1 leaves them, dividing by 0 would make them nan.
    weights = sums / (np.abs(sums).max(initial=0.0) or 1.0)
    shares = np.abs(values) / (np.abs(values).sum() or 1.0)
    return [
        _Shaded(word, float(weight), float(shares[list(word.places)].sum()))
        for word, weight in zip(words, weights, strict=True)
    ]


def _notes(shaded: Sequence[_Shaded], color: str = "") -> list[str]:
    """What no colour says: that there is none, how much the words hold that are not scored, and how pieces count."""
    unscored = [each for each in shaded if not each.word.scored]
    share = sum(each.share for each in unscored)
    weights = [each.weight for each in shaded if each.word.scored]
    notes = [_NOTHING] if weights and not any(weights) else []
    if share > 0:
        # Each name once, in the order of the text.
        names = list(dict.fromkeys(each.word.text for each in unscored))
        listed = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
        notes.append(f"Not scored{color}: {listed}, with {_percent(share)} of the relevance")
    if any(each.word.scored and len(each.word.places) > 1 for each in shaded):
        notes.append(_OF_PIECES)
    return notes


def _percent(share: float) -> str:
    """A share that is nearly nothing or nearly all must not read as nothing or all."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < share < 1:
        return "more than 99.9 %"
    return f"{100 * share:.1f} %"


def _color(weight: float) -> tuple[int, int, int]:
    return POSITIVE if weight > 0 else NEGATIVE


def _span(shaded: _Shaded) -> str:
    word = shaded.word
    if not word.scored:
        styles = ["color:#767676", "font-size:80%"]
        title = f"not scored: {_percent(shaded.share)} of the relevance"
    else:
        red, green, blue = _color(shaded.weight)
        styles = [f"background:rgba({red},{green},{blue},{abs(shaded.weight) * OPACITY:.2f})", "border-radius:2px"]
        title = f"{shaded.weight:+.2f}" + (f", {len(word.places)} pieces" if len(word.places) > 1 else "")
    if word.evidence:
        styles.append("border-bottom:2px solid #111")
    space = " " if word.space else ""
    # The text's own first letter tells whether it runs from right to left, not that of [CLS].
    direction = "" if word.scored else ' dir="auto"'
    return f'{space}<span{direction} style="{";".join(styles)}" title="{title}">{html.escape(word.text)}</span>'


def _painted(shaded: _Shaded) -> str:
    word = shaded.word
    if not word.scored:
        codes = _GREY
    else:
        red, green, blue = _on_white(shaded)  # a terminal knows no opacity
        codes = f"38;2;17;17;17;48;2;{red};{green};{blue}"
    underline = ";4" if word.evidence else ""
    return f"{' ' if word.space else ''}\x1b[{codes}{underline}m{word.text}\x1b[0m"


def _close_together(shaded: Iterable[_Shaded]) -> list[list[_Shaded]]:
    """The words that no space parts, such as a word and its comma."""
    groups: list[list[_Shaded]] = []
    for each in shaded:
        if each.word.space or not groups:
            groups.append([])
        groups[-1].append(each)
    return groups


def _marked(group: list[_Shaded]) -> str:
    """Of what stands close together: Markdown knows no emphasis between two letters."""
    text = _escaped("".join(each.word.text for each in group))
    text = f"**{text}**" if any(each.weight >= 0.5 for each in group) else text
    return f"「{text}」" if any(each.word.evidence for each in group) else text


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+.!|<>~-])", r"\\\1", text)


def _placed(words: Sequence[Word], font: Any, width: int) -> tuple[list[tuple[int, int]], int]:
    """Return where each word begins, and the top of the last line."""
    x, y, places = GAP, GAP, []
    for word in words:
        wide, gap = int(font.getlength(word.text)), int(font.getlength(" ")) if word.space and x > GAP else 0
        if x + gap + wide > width - GAP and x > GAP:
            x, y, gap = GAP, y + _line(font), 0
        places.append((x + gap, y))
        x += gap + wide
    return places, y


def _line(font: Any) -> int:
    return int(1.5 * font.size)
