"""Relevance over text: for a page, a terminal, or Markdown."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

POSITIVE = (225, 29, 29)
NEGATIVE = (37, 99, 235)
# Opacity of the strongest token's colour: black text stays legible on it.
_OPACITY = 0.75
_SPECIAL = re.compile(r"\[[A-Z]+\]|<[^<>\s]+>")
_CLOSING = re.compile(r"[.,!?;:%)\]}]+")


class _Piece(NamedTuple):
    """A token as it is shown."""

    text: str
    space: bool
    """Whether a space comes before it."""
    special: bool
    """Whether it is a mark of the tokenizer, such as `[CLS]`."""
    weight: float
    """Relevance over the largest magnitude, in [-1, 1]."""
    evidence: bool
    """Whether the rationale names it."""


def token_html(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    title: str | None = None,
) -> str:
    """The text as a block of HTML: red for relevance, blue for negative relevance, the rationale underlined.

    Args:
        tokens: As the tokenizer names them; word pieces (`##ing`, `Ġword`, `▁word`) are joined to words.
        scores: Relevance of each token, of any range; its largest magnitude has the full colour. nan counts as none.
        rationale: 1 evidence, 0 not, 255 ignored, for each token.
        title: A line above.

    Returns:
        One `<div>`; all text in it is escaped.

    Raises:
        ValueError: If the lengths differ.
    """
    heading = "" if title is None else f'<div style="font-weight:600;margin-bottom:4px">{html.escape(title)}</div>'
    body = "".join(_span(piece) for piece in _pieces(tokens, scores, rationale))
    style = "font:15px/1.7 system-ui,sans-serif;color:#111;background:#fff;padding:8px"
    return f'<div style="{style}">{heading}<div>{body}</div></div>'


def token_ansi(tokens: Sequence[str], scores: Float[np.ndarray, " tokens"], rationale: ArrayLike | None = None) -> str:
    """The text for a terminal with 24-bit colour, in the colours of `token_html`; arguments and errors as there."""
    return "".join(_painted(piece) for piece in _pieces(tokens, scores, rationale))


def token_markdown(
    tokens: Sequence[str], scores: Float[np.ndarray, " tokens"], rationale: ArrayLike | None = None
) -> str:
    """The text in Markdown: words bold from half of the largest relevance on, those of the rationale in brackets 「」.

    For pages that show no colour. Arguments and errors as in `token_html`.
    """
    return " ".join(_marked(word) for word in _words(_pieces(tokens, scores, rationale)))


def _pieces(tokens: Sequence[str], scores: ArrayLike, rationale: ArrayLike | None) -> list[_Piece]:
    values = np.nan_to_num(np.asarray(scores, dtype=float), posinf=0.0, neginf=0.0)
    evidence = np.zeros(len(tokens)) if rationale is None else np.asarray(rationale)
    if not len(tokens) == len(values) == len(evidence):
        raise ValueError(f"{len(tokens)} tokens have {len(values)} scores and a rationale of {len(evidence)}")
    weights = values / (np.abs(values).max(initial=0.0) or 1.0)
    marked = any(token.startswith(("Ġ", "▁")) for token in tokens)
    special = [bool(_SPECIAL.fullmatch(token)) for token in tokens]
    return [
        _Piece(
            text=_shown(token),
            space=i > 0 and (special[i] or special[i - 1] or _starts_word(token, marked)),
            special=special[i],
            weight=float(weights[i]),
            evidence=bool(evidence[i] == 1),
        )
        for i, token in enumerate(tokens)
    ]


def _starts_word(token: str, marked: bool) -> bool:
    """Whether a space belongs before the token; `marked` where the tokenizer marks the starts of words."""
    if marked:
        return token.startswith(("Ġ", "▁"))
    return not token.startswith("##") and not _CLOSING.fullmatch(token)


def _shown(token: str) -> str:
    """Without the tokenizer's marks, and without characters that would act on a terminal."""
    word = token.lstrip("Ġ▁").replace("Ċ", "↵") if token[:1] in "Ġ▁Ċ" else token
    word = word[2:] if len(word) > 2 and word.startswith("##") else word
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in word)


def _color(weight: float) -> tuple[int, int, int]:
    return POSITIVE if weight > 0 else NEGATIVE


def _span(piece: _Piece) -> str:
    red, green, blue = _color(piece.weight)
    styles = [f"background:rgba({red},{green},{blue},{abs(piece.weight) * _OPACITY:.2f})", "border-radius:2px"]
    if piece.evidence:
        styles.append("border-bottom:2px solid #111")
    if piece.special:
        styles.append("color:#888;font-size:80%")
    text = html.escape(piece.text)
    space = " " if piece.space else ""
    return f'{space}<span style="{";".join(styles)}" title="{piece.weight:+.2f}">{text}</span>'


def _painted(piece: _Piece) -> str:
    alpha = abs(piece.weight) * _OPACITY
    red, green, blue = (round(255 + alpha * (channel - 255)) for channel in _color(piece.weight))
    codes = f"38;2;17;17;17;48;2;{red};{green};{blue}" + (";4" if piece.evidence else "")
    space = " " if piece.space else ""
    return f"{space}\x1b[{codes}m{piece.text}\x1b[0m"


def _words(pieces: Iterable[_Piece]) -> list[list[_Piece]]:
    """The pieces that no space parts, together."""
    words: list[list[_Piece]] = []
    for piece in pieces:
        if piece.space or not words:
            words.append([])
        words[-1].append(piece)
    return words


def _marked(word: list[_Piece]) -> str:
    """Of whole words: Markdown knows no emphasis within one."""
    text = re.sub(r"([\\`*_{}\[\]()#+.!|<>~-])", r"\\\1", "".join(piece.text for piece in word))
    text = f"**{text}**" if any(piece.weight >= 0.5 for piece in word) else text
    return f"「{text}」" if any(piece.evidence for piece in word) else text
