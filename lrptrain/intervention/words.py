"""The word swap: a text takes certain words of another text, its donor, in place of its own.

Which words is said for each text: those of one kind, such as names of towns; punctuation; links and numbers. Whatever
else a text says stays. A donor that has none leaves the text without, so that what such a swap moves is the reliance on
which of these words there are, how many, where, and on their being there at all.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from lrptrain.batch.content import attended_tokens
from lrptrain.cues.text_form import Padding, along_tokens, padding_of

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
    padding: Padding | None = None,
    ends: tuple[bool, bool] = (True, True),
) -> dict[str, Tensor]:
    """Return the texts without their chosen words, and with those of their donors.

    A word is put where it stands in its donor, as a share of the way through all other words, between two words of the
    text. What makes a text too long is cut before its last token.

    Args:
        batch: Texts with `input_ids` and `attention_mask`; the model's other arguments are kept.
        donors: The donor of every text, padded to the same length.
        own: The words of the texts.
        given: The words of the donors.
        most: So many tokens a text may have, special ones included.
        padding: What fills up the result; None for what fills up the texts.
        ends: Whether texts begin, and end, with a special token, which stays where it is.
    """
    texts = [_attended_ids(batch, row) for row in range(len(own))]
    lenders = [_attended_ids(donors, row) for row in range(len(given))]
    swapped = [_swapped(*pair, most, ends) for pair in zip(texts, own, lenders, given, strict=True)]
    return padded_like(batch, swapped, padding)


def padded_like(
    batch: Mapping[str, Tensor], texts: Sequence[Sequence[int]], padding: Padding | None = None
) -> dict[str, Tensor]:
    """Return texts, all their tokens included, as a batch whose padding is that of another one.

    Args:
        batch: Texts with `input_ids` and `attention_mask`. Where it has `token_type_ids`, those of its first tokens are
            taken for all; other arguments of the model stay at their places.
        texts: The token ids of every text of the result.
        padding: What fills them up; None for what fills up the batch.
    """
    attended = attended_tokens(batch)
    pad, on_the_left = padding_of(batch) if padding is None else padding
    width = max(len(text) for text in texts)
    ids = torch.full((len(texts), width), pad, dtype=batch["input_ids"].dtype)
    mask = torch.zeros((len(texts), width), dtype=batch["attention_mask"].dtype)
    for row, text in enumerate(texts):
        place = slice(width - len(text), width) if on_the_left else slice(0, len(text))
        ids[row, place] = torch.tensor(text, dtype=ids.dtype)
        mask[row, place] = 1
    device = batch["input_ids"].device
    padded = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
    is_text = padded["attention_mask"] != 0
    in_order = torch.arange(width, device=device).clamp(max=attended.shape[1] - 1).expand(len(texts), width)
    padded |= along_tokens(batch, in_order, is_text)
    if "token_type_ids" in batch:
        first = attended.to(torch.uint8).argmax(1, keepdim=True)
        padded["token_type_ids"] = torch.where(is_text, batch["token_type_ids"].gather(1, first), 0)
    return padded


def _attended_ids(batch: Mapping[str, Tensor], row: int) -> dict[int, int]:
    """Return the tokens of a text by their index, without its padding."""
    attended = attended_tokens(batch)[row].nonzero().flatten().tolist()
    ids = batch["input_ids"][row].tolist()
    return {index: ids[index] for index in attended}


def _swapped(
    text: dict[int, int],
    own: TextWords,
    donor: dict[int, int],
    given: TextWords,
    most: int,
    ends: tuple[bool, bool],
) -> list[int]:
    """Return the token ids of a text with the chosen words of its donor.

    Args:
        text: The tokens of the text by their index, its special ones at both ends included.
        own: Its words.
        donor: The tokens of the donor, likewise.
        given: The donor's words.
        most: So many tokens it may have.
        ends: Whether there is a special token at its beginning, and at its end.
    """
    before, middle, behind = _in_three(list(text), ends)
    if len(text) < sum(ends):
        return list(text.values())
    chosen = _inside(own.chosen)
    rest = [index for index in middle if index not in chosen]
    # Nothing is put between the pieces of a word. e.g. rest tokens "see" "play" "##ing": places 0, 1 and 3.
    starts = set(own.starts)
    places = [number for number, index in enumerate(rest) if index in starts or number == 0]
    places.append(len(rest))
    put: dict[int, list[int]] = {}
    for span, share in zip(given.chosen, _shares(donor, given, ends), strict=True):
        place = _nearest(places, share * len(rest))
        put.setdefault(place, []).extend(donor[index] for index in range(*span))
    words = [*put.get(0, ())]
    for number, index in enumerate(rest, 1):
        words += [text[index], *put.get(number, ())]
    room = most - len(before) - len(behind)
    return [*(text[index] for index in before), *words[:room], *(text[index] for index in behind)]


def _in_three(places: list[int], ends: tuple[bool, bool]) -> tuple[list[int], list[int], list[int]]:
    """Return the places of the special token at the beginning, of what stands between, and of that at the end."""
    first = int(ends[0])
    last = max(len(places) - int(ends[1]), first)
    return places[:first], places[first:last], places[last:]


def _nearest(places: list[int], wanted: float) -> int:
    """Return the nearest of some numbers that rise, of two equally near ones the lower one."""
    behind = bisect_left(places, wanted)
    if behind in (0, len(places)):
        return places[max(behind - 1, 0)]
    below = places[behind - 1]
    above = places[behind]
    return below if wanted - below <= above - wanted else above


def _shares(donor: dict[int, int], given: TextWords, ends: tuple[bool, bool]) -> list[float]:
    """Return behind which share of the donor's other tokens each chosen span stands, in [0, 1]."""
    chosen = _inside(given.chosen)
    rest = [index for index in _in_three(list(donor), ends)[1] if index not in chosen]
    return [bisect_left(rest, start) / max(len(rest), 1) for start, _ in given.chosen]


def _inside(spans: Sequence[Span]) -> set[int]:
    """Return the indices of all tokens of some spans."""
    assert all(before[1] <= behind[0] for before, behind in pairwise(spans))
    return {index for span in spans for index in range(*span)}
