"""Panels side by side, and texts as pictures, in the colours of `lrptrain.render`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from lrptrain.render import contact_sheet, join_words, scored_tokens
from lrptrain.render.colors import NEGATIVE, OPACITY, POSITIVE
from lrptrain.render.sheet import font_of

Picture = UInt8[np.ndarray, "height width 3"]
GOOD = (30, 130, 76)
"""The colour of a bar whose class is right; a wrong one is red."""
WIDTH, MARGIN, SIZE = 728, 12, 20
"""Of a text: the picture's width, its margin and the size of the letters, in pixels."""


def panels(titled: Sequence[tuple[str, Picture]], columns: int) -> Picture:
    """Pictures in rows, each over its title."""
    return contact_sheet([picture for _, picture in titled], [title for title, _ in titled], columns)


def steps(
    titled: Sequence[tuple[str, Picture]], probabilities: Sequence[Sequence[float]], names: Sequence[str], truth: int
) -> Picture:
    """Pictures of one size side by side: a title above each, the classes' probabilities as bars below it."""
    height, width = titled[0][1].shape[:2]
    top, bar, label, gap = 44, 34, 200, 28
    image = Image.new("RGB", (len(titled) * (width + gap) - gap, top + height + 8 + bar * len(names)), "white")
    draw = ImageDraw.Draw(image)
    for column, ((title, picture), shares) in enumerate(zip(titled, probabilities, strict=True)):
        left = column * (width + gap)
        draw.text((left, 8), title, fill=(17, 17, 17), font=font_of(24))
        image.paste(Image.fromarray(picture), (left, top))
        predicted = max(range(len(names)), key=lambda i: shares[i])
        for i, (name, share) in enumerate(zip(names, shares, strict=True)):
            y = top + height + 10 + bar * i
            said = i == predicted
            ink = (17, 17, 17) if said else (120, 120, 120)
            color = (GOOD if i == truth else POSITIVE) if said else (200, 200, 200)
            draw.text((left, y), name, fill=ink, font=font_of(20))
            length = round((width - label - 62) * share)
            draw.rectangle((left + label, y + 4, left + label + max(2, length), y + 22), fill=color)
            draw.text((left + label + length + 8, y), f"{100 * share:.0f} %", fill=ink, font=font_of(20))
    return np.asarray(image)


def texts(lines: Sequence[tuple[str, Sequence[str], Float[np.ndarray, " tokens"], Sequence[int]]]) -> Picture:
    """Texts below each other: a title, tokens, their relevance, and a rationale (1 is underlined)."""
    drawn = [text(*line) for line in lines]
    return np.vstack(drawn)


def text(title: str, tokens: Sequence[str], scores: Float[np.ndarray, " tokens"], rationale: Sequence[int]) -> Picture:
    """One text, its words coloured by their relevance: the strongest has the full colour."""
    words = join_words(tokens, scored_tokens(tokens).tolist(), [value == 1 for value in rationale])
    sums = np.array([scores[list(word.places)].sum() if word.scored else 0.0 for word in words])
    weights = sums / (np.abs(sums).max(initial=0.0) or 1.0)
    font = font_of(SIZE)
    small = font_of(15)
    # Words go on the next line where they would not fit, so that the height is known only at the end.
    image = Image.new("RGB", (WIDTH, 400), "white")
    draw = ImageDraw.Draw(image)
    draw.text((MARGIN, 6), title, fill=(90, 90, 90), font=small)
    x, y = float(MARGIN), 28
    for word, weight in zip(words, weights, strict=True):
        if not word.scored:
            continue
        width = draw.textlength(word.text, font=font)
        x += 6 if word.space else 0
        if x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + SIZE + 12
        color = np.array(POSITIVE if weight > 0 else NEGATIVE)
        alpha = OPACITY * abs(weight)
        background = tuple(int(value) for value in np.rint(255 + alpha * (color - 255)))
        if alpha > 0.02:  # else it would paint over the edge of the word before it
            draw.rounded_rectangle((x - 2 * word.space, y - 2, x + width + 2, y + SIZE + 4), 3, fill=background)
        draw.text((x, y), word.text, fill=(17, 17, 17), font=font)
        if word.evidence:
            draw.line((x - 2, y + SIZE + 6, x + width + 2, y + SIZE + 6), fill=(17, 17, 17), width=2)
        x += width
    return np.asarray(image)[: y + SIZE + 14]
