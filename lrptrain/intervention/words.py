"""The word swap: a text takes certain words of another text, its donor, in place of its own.

Which words is said for each text: those of one kind, such as names of towns; punctuation; links and numbers. Whatever
else a text says stays. A donor that has none leaves the text without, so that what such a swap moves is the reliance on
which of these words there are, how many, where, and on their being there at all.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from lrptrain.batch.content import attended_tokens

Span = tuple[int, int]
"""The first token of some words, and the one behind them."""


class TextWords(NamedTuple):
    """The words of a text, and which of them are swapped.

    Attributes:
        starts: The index of every token that begins a word.
        chosen: The spans that are swapped, in their order, none in another.
    """

    starts: tuple[int, ...]
    chosen: tuple[Span, ...]


def with_words_of(
    batch: Mapping[str, Tensor],
    donors: Mapping[str, Tensor],
    own: Sequence[TextWords],
    given: Sequence[TextWords],
    most: int,
) -> dict[str, Tensor]:
    """Return the texts without their chosen words, and with those of their donors.

    A word is put where it stands in its donor, as a share of the way through all other words, between two words of the
    text. What makes a text too long is cut before its last token.

    Args:
        batch: Texts with `input_ids` and `attention_mask`; of the rest, `token_type_ids` are kept.
        donors: The donor of every text, padded to the same length.
        own: The words of the texts.
        given: The words of the donors.
        most: So many tokens a text may have, special ones included.
    """
    texts = [_attended_ids(batch, row) for row in range(len(own))]
    lenders = [_attended_ids(donors, row) for row in range(len(given))]
    swapped = [_swapped(*pair, most) for pair in zip(texts, own, lenders, given, strict=True)]
    return padded_like(batch, swapped)


def padded_like(batch: Mapping[str, Tensor], texts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Return texts, all their tokens included, as a batch whose padding is that of another one.

    Args:
        batch: Texts with `input_ids` and `attention_mask`. Where it has `token_type_ids`, those of its first tokens are
            taken for all.
        texts: The token ids of every text of the result.
    """
    attended = attended_tokens(batch)
    # Models that look for the padding by its id need that of their tokenizer.
    padding = batch["input_ids"][~attended]
    pad = int(padding[0]) if len(padding) else 0
    # The padding stays on its side; one text that begins with it tells for all.
    on_the_left = bool((~attended[:, 0]).any())
    width = max(len(text) for text in texts)
    ids = torch.full((len(texts), width), pad, dtype=batch["input_ids"].dtype)
    mask = torch.zeros((len(texts), width), dtype=batch["attention_mask"].dtype)
    for row, text in enumerate(texts):
        place = slice(width - len(text), width) if on_the_left else slice(0, len(text))
        ids[row, place] = torch.tensor(text, dtype=ids.dtype)
        mask[row, place] = 1
    device = batch["input_ids"].device
    padded = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
    if "token_type_ids" in batch:
        first = attended.to(torch.uint8).argmax(1, keepdim=True)
        types = batch["token_type_ids"].gather(1, first)
        padded["token_type_ids"] = torch.where(padded["attention_mask"] != 0, types, 0)
    return padded


def _attended_ids(batch: Mapping[str, Tensor], row: int) -> dict[int, int]:
    """Return the tokens of a text by their index, without its padding."""
    attended = attended_tokens(batch)[row].nonzero().flatten().tolist()
    ids = batch["input_ids"][row].tolist()
    return {index: ids[index] for index in attended}


def _swapped(text: dict[int, int], own: TextWords, donor: dict[int, int], given: TextWords, most: int) -> list[int]:
    """Return the token ids of a text with the chosen words of its donor.

    Args:
        text: The tokens of the text by their index, its special ones at both ends included.
        own: Its words.
        donor: The tokens of the donor, likewise.
        given: The donor's words.
        most: So many tokens it may have.
    """
    if len(text) < 2:
        return list(text.values())
    first, *middle, last = text
    chosen = _inside(own.chosen)
    rest = [index for index in middle if index not in chosen]
    # Nothing is put between the pieces of a word. e.g. rest tokens "see" "play" "##ing": places 0, 1 and 3.
    starts = set(own.starts)
    places = [number for number, index in enumerate(rest) if index in starts or number == 0]
    places.append(len(rest))
    put: dict[int, list[int]] = {}
    for span, share in zip(given.chosen, _shares(donor, given), strict=True):
        place = min(places, key=lambda each: abs(each - share * len(rest)))
        put.setdefault(place, []).extend(donor[index] for index in range(*span))
    words = [*put.get(0, ())]
    for number, index in enumerate(rest, 1):
        words += [text[index], *put.get(number, ())]
    return [text[first], *words[: most - 2], text[last]]


def _shares(donor: dict[int, int], given: TextWords) -> list[float]:
    """Return behind which share of the donor's other tokens each chosen span stands, in [0, 1]."""
    chosen = _inside(given.chosen)
    rest = [index for index in list(donor)[1:-1] if index not in chosen]
    return [sum(index < start for index in rest) / max(len(rest), 1) for start, _ in given.chosen]


def _inside(spans: Sequence[Span]) -> set[int]:
    """Return the indices of all tokens of some spans."""
    assert all(before[1] <= behind[0] for before, behind in pairwise(spans))
    return {index for span in spans for index in range(*span)}
