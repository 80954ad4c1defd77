"""The case swap: a text is written in small letters, or in capitals, as another text is, its donor.

Token ids do not tell what another case of theirs is: only the tokenizer does. So a text goes from ids to text, is
written in another case, and goes back. A tokenizer that does not give back the very ids of a text as it is may change
more than its case, and that text is not swapped.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lrptrain.cues.text_form import Padding
from lrptrain.intervention.words import padded_like

_FIRST_LETTERS = re.compile("(?<![\\w'\N{RIGHT SINGLE QUOTATION MARK}])[^\\W\\d_]")
_SENTENCE_STARTS = re.compile(r"(?:^|[.!?]\s+)\W*[^\W\d_]")


def _headline(text: str) -> str:
    return _FIRST_LETTERS.sub(lambda match: match.group().upper(), text.lower())


def _sentences(text: str) -> str:
    return _SENTENCE_STARTS.sub(lambda match: match.group().upper(), text.lower())


STYLES: dict[str, Callable[[str], str]] = {
    "small letters": str.lower,
    "sentences": _sentences,
    "headline": _headline,
    "capitals": str.upper,
}
"""How a text can be written, by name."""
MOSTLY = 0.6
"""A text is written in a style if so large a share of its words is."""


class CasedText(NamedTuple):
    """A text in every case.

    Attributes:
        style: The number of the style that it is written in.
        versions: Its token ids, special ones included, by the number of the style; None of a style that no text has.
    """

    style: int
    versions: tuple[tuple[int, ...] | None, ...]


def style_of(text: str) -> int:
    """Return the number of the style that a text is written in, the nearest of `STYLES`."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.lower() != word.upper()]
    # "I" and "A" are capitals in any style.
    longer = [word for word in words if len(word) > 1]
    if not any(word != word.lower() for word in words):
        return 0
    if longer and sum(word == word.upper() for word in longer) >= MOSTLY * len(longer):
        return 3
    return 2 if sum(word[0] != word[0].lower() for word in words) >= MOSTLY * len(words) else 1


def as_written(ids: Sequence[int], tokenizer: Any) -> str:
    """Return the text that token ids stand for, without the first and the last one, which are special."""
    return str(tokenizer.decode(list(ids[1:-1]), clean_up_tokenization_spaces=False))


def in_cases(ids: Sequence[int], tokenizer: Any, most: int, styles: Collection[int]) -> CasedText | None:
    """Return a text in several cases; None where the tokenizer does not give back the ids, or knows no such word.

    Args:
        ids: Its token ids, of which the first and the last are special ones.
        tokenizer: One of `transformers`, or another with `decode` and a call that returns `input_ids`.
        most: So many tokens a text may have; one that is longer in another case is not swapped.
        styles: The numbers of the styles that it is written in, that of the text as it is among them.
    """
    if len(ids) < 3:
        return None
    first, *inner, last = ids
    text = as_written(ids, tokenizer)

    def encoded(written: str) -> list[int]:
        return [int(number) for number in tokenizer(written, add_special_tokens=False)["input_ids"]]

    if encoded(text) != inner:
        return None
    versions = [encoded(write(text)) if number in styles else None for number, write in enumerate(STYLES.values())]
    existing = [version for version in versions if version is not None]
    # An unknown word has no case, and one that is unknown in capitals would be taken from the text.
    special = set(getattr(tokenizer, "all_special_ids", ()))
    if special & {number for version in (inner, *existing) for number in version} or max(map(len, existing)) > most - 2:
        return None
    with_ends = tuple(None if version is None else (first, *version, last) for version in versions)
    return CasedText(style_of(text), with_ends)


def most_tokens(longest: int, tokenizer: Any) -> int:
    """Return how many tokens a text may have that is written anew, special ones included.

    Args:
        longest: So many the longest of the texts has, which may be all that the model can read.
        tokenizer: It may know how many the model can read.
    """
    limit = int(getattr(tokenizer, "model_max_length", 0) or 0)
    # Tokenizers that know of no limit say 10^30.
    return limit if longest <= limit < 10**6 else longest


def in_all_cases(texts: Sequence[Sequence[int]], tokenizer: Any, most: int = 0) -> tuple[CasedText | None, ...]:
    """Return every text in the styles that any of them has; see `in_cases`.

    Args:
        texts: The token ids of every text, of which the first and the last are special ones.
        tokenizer: As for `in_cases`.
        most: As for `in_cases`; 0 for what the tokenizer says, or the longest text.
    """
    most = most or most_tokens(max(map(len, texts), default=0), tokenizer)
    # Only what is there can be lent: a style that no text has may be cut into many more tokens.
    styles = {style_of(as_written(ids, tokenizer)) for ids in texts}
    return tuple(in_cases(ids, tokenizer, most, styles) for ids in texts)


def written_like(
    batch: Mapping[str, Tensor],
    own: Sequence[CasedText],
    donors: Sequence[CasedText],
    padding: Padding | None = None,
) -> dict[str, Tensor]:
    """Return texts, each in the style of its donor.

    Args:
        batch: The texts as they are, whose padding the result has.
        own: The same in every case.
        donors: The donor of every text.
        padding: What fills up the result; None for what fills up the texts.
    """
    versions = [text.versions[donor.style] for text, donor in zip(own, donors, strict=True)]
    return padded_like(batch, [version for version in versions if version is not None], padding)
