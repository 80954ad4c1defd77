"""Whole batches of texts that take their length, punctuation, markers or case from each other.

How a single text is rewritten is what interventions judge by, too: see `lengths`, `words` and `casing`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.content import attended_tokens
from lrptrain.batch.parts import TextProperty
from lrptrain.intervention.casing import (
    STYLES,
    CasedText,
    as_written,
    in_all_cases,
    most_tokens,
    style_of,
    written_like,
)
from lrptrain.intervention.lengths import are_single_texts, at_lengths, inner_tokens
from lrptrain.intervention.text_words import TextWord, is_punctuation, markers_of, outside_markers, words_among
from lrptrain.intervention.words import Span, TextWords, with_words_of

COLUMNS = ("input_ids", "attention_mask", "token_type_ids")
"""What a text is made of, and what changes where it is rewritten."""
Texts = Mapping[str, Tensor]
Donors = Int[Tensor, " batch"]
Choice = Callable[[list[TextWord]], list[Span]]


def rewritten(kind: TextProperty, texts: Texts, donors: Donors, tokenizer: Any) -> dict[str, Tensor]:
    """Return texts, each with a property of its donor; what a text says stays, as far as it fits in.

    Args:
        kind: The property.
        texts: `input_ids` and `attention_mask`, `[batch, tokens]`, and `token_type_ids` where they have them.
        donors: For every text the index of its donor, perhaps itself: then it stays as it is.
        tokenizer: That of the model; the length needs none.

    Returns:
        The same columns: at least as many tokens wide as the texts, and wider where one has become longer than that.

    Raises:
        ValueError: If the texts are pairs, such as a question and an answer, of which nobody knows what is longer.
    """
    texts = {name: texts[name] for name in COLUMNS if name in texts}
    if not are_single_texts([texts]):
        raise ValueError(
            f"a swap of {kind} is one of single texts, and these are pairs, such as a question and an answer"
        )
    changed = _REWRITES[kind](texts, donors, tokenizer)
    # A text of which nothing has changed keeps its very padding, and the batch its width.
    width = max(changed["input_ids"].shape[1], texts["input_ids"].shape[1])
    itself = (donors.cpu() == torch.arange(len(donors))).to(changed["input_ids"].device)[:, None]
    before = widened(texts, width)
    return {name: torch.where(itself, before[name], values) for name, values in widened(changed, width).items()}


def widened(texts: Texts, width: int) -> dict[str, Tensor]:
    """Return texts with more padding, on the side where they have it.

    Args:
        texts: As for `rewritten`.
        width: So many tokens the result has, at least as many as the texts.
    """
    attended = attended_tokens(texts)
    room = width - attended.shape[1]
    if not room:
        return dict(texts)
    # One text that begins with its padding tells for all.
    sides = (room, 0) if bool((~attended[:, 0]).any()) else (0, room)
    padding = texts["input_ids"][~attended]
    filling = {"input_ids": int(padding[0]) if len(padding) else 0}
    return {name: F.pad(values, sides, value=filling.get(name, 0)) for name, values in texts.items()}


def _at_lengths_of(texts: Texts, donors: Donors, tokenizer: Any) -> dict[str, Tensor]:
    """Return texts as long as their donors, made of their own words."""
    lengths = inner_tokens(texts).sum(1)
    return next(at_lengths(texts, [lengths[donors.to(lengths.device)]]))


def _with_words(texts: Texts, donors: Donors, tokenizer: Any, choose: Choice) -> dict[str, Tensor]:
    """Return texts with certain words of their donors in place of their own.

    Args:
        texts: As for `rewritten`.
        donors: As for `rewritten`.
        tokenizer: It names the tokens.
        choose: Returns the spans of these words among all words of a text.
    """
    ids = torch.where(inner_tokens(texts), texts["input_ids"], -1).cpu().numpy()
    every = [_chosen(row, tokenizer, choose) for row in ids]
    order = donors.tolist()
    lenders = {name: values[donors.to(values.device)] for name, values in texts.items()}
    most = most_tokens(ids.shape[1], tokenizer)
    return with_words_of(texts, lenders, every, [every[donor] for donor in order], most)


def _chosen(ids: Int[np.ndarray, " tokens"], tokenizer: Any, choose: Choice) -> TextWords:
    words = words_among(ids, tokenizer.convert_ids_to_tokens)
    return TextWords(tuple(word.span[0] for word in words), tuple(choose(words)))


def _punctuation_spans(words: list[TextWord]) -> list[Span]:
    """Return where the punctuation of a text stands: the dots of a link are none."""
    return [word.span for word in outside_markers(words) if is_punctuation(word.text)]


def _marker_spans(words: list[TextWord]) -> list[Span]:
    """Return where the links, names of users, numbers and the like of a text stand."""
    return [marker.span for marker in markers_of(words)]


def _with_punctuation(texts: Texts, donors: Donors, tokenizer: Any) -> dict[str, Tensor]:
    return _with_words(texts, donors, tokenizer, _punctuation_spans)


def _with_markers(texts: Texts, donors: Donors, tokenizer: Any) -> dict[str, Tensor]:
    return _with_words(texts, donors, tokenizer, _marker_spans)


def _cased(texts: Texts, donors: Donors, tokenizer: Any) -> dict[str, Tensor]:
    """Return texts in the case of their donors; one whose ids the tokenizer does not give back stays as it is."""
    attended = attended_tokens(texts)
    ids = [row[mask].tolist() for row, mask in zip(texts["input_ids"], attended, strict=True)]
    versions = [
        _always(row, tokenizer) if version is None else version
        for row, version in zip(ids, in_all_cases(ids, tokenizer), strict=True)
    ]
    return written_like(texts, versions, [versions[donor] for donor in donors.tolist()])


def _always(ids: list[int], tokenizer: Any) -> CasedText:
    """Return a text that is the same in every case, and lends the one that it is written in."""
    return CasedText(style_of(as_written(ids, tokenizer)), tuple(tuple(ids) for _ in STYLES))


_REWRITES: dict[str, Callable[[Texts, Donors, Any], dict[str, Tensor]]] = {
    "length": _at_lengths_of,
    "punctuation": _with_punctuation,
    "markers": _with_markers,
    "case": _cased,
}
