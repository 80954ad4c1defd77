"""Relevance over text: for a page, a terminal, or Markdown."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

POSITIVE = (225, 29, 29)
NEGATIVE = (37, 99, 235)
# Opacity of the strongest token's colour: black text stays legible on it.
_OPACITY = 0.75
_IGNORED = 255  # in a rationale
_GREY = "38;2;136;136;136"
_MOST_NAMES = 3
# [CLS], [SEP] of BERT, <s>, </s>, <|endoftext|> of others; and punctuation that stands close to the word before it.
_SPECIAL = re.compile(r"\[[A-Z]+\]|<[^<>\s]+>")
_CLOSING = re.compile(r"[.,!?;:%)\]}]+")


class _Piece(NamedTuple):
    """A token as it is shown."""

    text: str
    space: bool
    """Whether a space comes before it."""
    scored: bool
    """Whether it is coloured: neither a special token, such as `[CLS]`, nor ignored."""
    weight: float
    """Relevance over the largest magnitude of a scored token, in [-1, 1]; 0 where it is not scored."""
    share: float
    """Its share of all relevance by magnitude, in [0, 1]."""
    evidence: bool
    """Whether the rationale names it."""


def token_html(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    title: str | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text as a block of HTML: red for relevance, blue for negative relevance, the rationale underlined.

    Tokens that are not scored are grey, and a line below says which share of the relevance they hold: by many methods
    `[CLS]` alone has nearly all of it, and colours scaled by that would show no word.

    Args:
        tokens: Tokens as the tokenizer names them; word pieces (`##ing`, `Ġword`, `▁word`) are joined to words.
        scores: Relevance of each token, of any range; nan counts as none. The largest magnitude of a scored token has
            the full colour.
        rationale: 1 evidence, 0 not, 255 ignored, for each token.
        title: A line above.
        scored: Whether each token is content of the text that is neither special nor ignored; see `scored_tokens` for
            the default.

    Returns:
        One `<div>`; all text in it is escaped.

    Raises:
        ValueError: If the lengths differ.
    """
    heading = "" if title is None else f'<div style="font-weight:600;margin-bottom:4px">{html.escape(title)}</div>'
    pieces = _pieces(tokens, scores, rationale, scored)
    body = "".join(_span(piece) for piece in pieces)
    note = _note(pieces, " (grey)")
    footing = f'<div style="color:#888;font-size:80%">{html.escape(note)}</div>' if note else ""
    style = "font:15px/1.7 system-ui,sans-serif;color:#111;background:#fff;padding:8px"
    return f'<div style="{style}">{heading}<div>{body}</div>{footing}</div>'


def token_ansi(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text for a terminal with 24-bit colour, in the colours of `token_html`; arguments and errors as there.

    A second line says which share of the relevance the grey tokens hold.
    """
    pieces = _pieces(tokens, scores, rationale, scored)
    note = _note(pieces, " (grey)")
    footing = f"\n\x1b[{_GREY}m{note}\x1b[0m" if note else ""
    return "".join(_painted(piece) for piece in pieces) + footing


def token_markdown(
    tokens: Sequence[str],
    scores: Float[np.ndarray, " tokens"],
    rationale: ArrayLike | None = None,
    scored: ArrayLike | None = None,
) -> str:
    """The text in Markdown: words bold from half of the largest relevance on, those of the rationale in brackets 「」.

    For pages that show no colour. Arguments and errors as in `token_html`.
    """
    pieces = _pieces(tokens, scores, rationale, scored)
    note = _note(pieces)
    footing = f"\n\n{_escaped(note)}" if note else ""
    return " ".join(_marked(word) for word in _words(pieces)) + footing


def scored_tokens(tokens: Sequence[str | None], rationale: ArrayLike | None = None) -> Bool[np.ndarray, " tokens"]:
    """Which tokens are scored, as far as their names and the rationale tell.

    Not scored are None (padding), marks of a tokenizer (`[CLS]`, `</s>`), and tokens that the rationale ignores. A
    rationale that ignores every token says that there is none.

    Args:
        tokens: Tokens as the tokenizer names them.
        rationale: 1 evidence, 0 not, 255 ignored, for each token.
    """
    content = np.array([token is not None and not _SPECIAL.fullmatch(token) for token in tokens], dtype=bool)
    if rationale is None:
        return content
    ignored = np.asarray(rationale) == _IGNORED
    return content if ignored.all() else content & ~ignored


def join_tokens(tokens: Sequence[str]) -> str:
    """Return tokens as a text: word pieces are joined to words, without the tokenizer's marks.

    Args:
        tokens: Tokens as the tokenizer names them.
    """
    zeros = np.zeros(len(tokens))
    return "".join(f"{' ' if piece.space else ''}{piece.text}" for piece in _pieces(tokens, zeros, None, None))


def _pieces(
    tokens: Sequence[str], scores: ArrayLike, rationale: ArrayLike | None, scored: ArrayLike | None
) -> list[_Piece]:
    values = np.nan_to_num(np.asarray(scores, dtype=float), posinf=0.0, neginf=0.0)
    annotation = np.zeros(len(tokens)) if rationale is None else np.asarray(rationale)
    if not len(tokens) == len(values) == len(annotation):
        raise ValueError(f"{len(tokens)} tokens have {len(values)} scores and a rationale of {len(annotation)}")
    coloured = scored_tokens(tokens, rationale) if scored is None else np.asarray(scored, dtype=bool)
    if len(coloured) != len(tokens):
        raise ValueError(f"scored must say of {len(tokens)} tokens whether they are, not of {len(coloured)}")
    # Relevance [9, 0.5, -0.25] of [CLS] good day: the weights are [0, 1, -0.5], the shares [0.92, 0.05, 0.03].
    weights = np.where(coloured, values, 0.0)
    weights = weights / (np.abs(weights).max(initial=0.0) or 1.0)
    shares = np.abs(values) / (np.abs(values).sum() or 1.0)
    # WordPiece (BERT) marks pieces that go on, as in "play ##ing"; byte-level BPE and SentencePiece mark the starts of
    # words, "Ġword" and "▁word". If any start is marked, the tokens are of the second kind.
    marked = any(token.startswith(("Ġ", "▁")) for token in tokens)
    special = [bool(_SPECIAL.fullmatch(token)) for token in tokens]
    return [
        _Piece(
            text=_shown(token),
            space=i > 0 and (special[i] or special[i - 1] or _starts_word(token, marked)),
            scored=bool(coloured[i]),
            weight=float(weights[i]),
            share=float(shares[i]),
            evidence=bool(annotation[i] == 1),
        )
        for i, token in enumerate(tokens)
    ]


def _note(pieces: Iterable[_Piece], color: str = "") -> str:
    """Which share of the relevance the tokens hold that are not scored; empty if they hold none."""
    unscored = [piece for piece in pieces if not piece.scored]
    share = sum(piece.share for piece in unscored)
    if not share > 0:
        return ""
    # Each name once, in the order of the text.
    names = list(dict.fromkeys(piece.text for piece in unscored))
    listed = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
    return f"Not scored{color}: {listed}, with {_percent(share)} of the relevance"


def _percent(share: float) -> str:
    """A share that is nearly nothing or nearly all must not read as nothing or all."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < share < 1:
        return "more than 99.9 %"
    return f"{100 * share:.1f} %"


def _starts_word(token: str, marked: bool) -> bool:
    """Whether a space belongs before the token; `marked` where the tokenizer marks the starts of words."""
    if marked:
        return token.startswith(("Ġ", "▁"))
    return not token.startswith("##") and not _CLOSING.fullmatch(token)


def _shown(token: str) -> str:
    """Without the tokenizer's marks, and without characters that would act on a terminal."""
    word = token.lstrip("Ġ▁").replace("Ċ", "↵") if token[:1] in "Ġ▁Ċ" else token
    # "##ing" is "ing", but "##" alone is what the text says.
    word = word[2:] if len(word) > 2 and word.startswith("##") else word
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in word)


def _color(weight: float) -> tuple[int, int, int]:
    return POSITIVE if weight > 0 else NEGATIVE


def _span(piece: _Piece) -> str:
    if not piece.scored:
        styles = ["color:#888", "font-size:80%"]
        title = f"not scored: {_percent(piece.share)} of the relevance"
    else:
        red, green, blue = _color(piece.weight)
        styles = [f"background:rgba({red},{green},{blue},{abs(piece.weight) * _OPACITY:.2f})", "border-radius:2px"]
        title = f"{piece.weight:+.2f}"
    if piece.evidence:
        styles.append("border-bottom:2px solid #111")
    space = " " if piece.space else ""
    return f'{space}<span style="{";".join(styles)}" title="{title}">{html.escape(piece.text)}</span>'


def _painted(piece: _Piece) -> str:
    if not piece.scored:
        codes = _GREY
    else:
        # As on the page: the strongest token is 75 % colour and 25 % white.
        alpha = abs(piece.weight) * _OPACITY
        # A terminal knows no opacity: the colour is mixed with white here.
        red, green, blue = (round(255 + alpha * (channel - 255)) for channel in _color(piece.weight))
        codes = f"38;2;17;17;17;48;2;{red};{green};{blue}"
    underline = ";4" if piece.evidence else ""
    return f"{' ' if piece.space else ''}\x1b[{codes}{underline}m{piece.text}\x1b[0m"


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
    # The strongest piece counts: "**unbelievable**" where only "believ" is relevant.
    text = _escaped("".join(piece.text for piece in word))
    text = f"**{text}**" if any(piece.weight >= 0.5 for piece in word) else text
    return f"「{text}」" if any(piece.evidence for piece in word) else text


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+.!|<>~-])", r"\\\1", text)
