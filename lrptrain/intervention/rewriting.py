"""Whole batches of texts that take their length, punctuation, markers or case from each other.

How a single text is rewritten is what interventions judge by, too: see `lengths`, `words` and `casing`.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.content import attended_tokens, end_tokens
from lrptrain.batch.parts import TextProperty
from lrptrain.intervention.casing import STYLES, CasedText, as_written, in_all_cases, style_of, written_like
from lrptrain.intervention.lengths import at_lengths, inner_tokens
from lrptrain.cues.text_form import Padding, TextForm, padding_of
from lrptrain.intervention.text_words import (
    TextWord,
    is_punctuation,
    markers_of,
    outside_markers,
    text_words,
    words_among,
)
from lrptrain.intervention.words import Span, TextWords, with_words_of

COLUMNS = ("input_ids", "attention_mask", "token_type_ids")
"""What a text is made of, and what changes where it is rewritten."""
Texts = Mapping[str, Tensor]
Donors = Int[Tensor, " batch"]
Choice = Callable[[list[TextWord]], list[Span]]


def rewritten(kind: TextProperty, texts: Texts, donors: Donors, form: TextForm) -> dict[str, Tensor]:
    """Return texts, each with a property of its donor; what a text says stays, as far as it fits in.

    Args:
        kind: The property.
        texts: `input_ids` and `attention_mask`, `[batch, tokens]`, and `token_type_ids` where they have them; single
            texts, no pairs.
        donors: For every text the index of its donor, perhaps itself: then it stays as it is.
        form: How the texts are made up. All but the length takes its tokenizer.

    Returns:
        The same columns: at least as many tokens wide as the texts, and wider where one has become longer than that.
    """
    texts = {name: texts[name] for name in COLUMNS if name in texts}
    padding = padding_of(texts, form.padding)
    changed = _REWRITES[kind](texts, donors, form, padding)
    width = max(changed["input_ids"].shape[1], texts["input_ids"].shape[1])
    itself = (donors.cpu() == torch.arange(len(donors))).to(changed["input_ids"].device)[:, None]
    before = widened(texts, width, padding)
    after = widened(changed, width, padding)
    return {name: torch.where(itself, before[name], values) for name, values in after.items()}


def widened(texts: Texts, width: int, padding: Padding) -> dict[str, Tensor]:
    """Return texts with more padding.

    Args:
        texts: As for `rewritten`.
        width: So many tokens the result has, at least as many as the texts.
        padding: What fills them up.
    """
    room = width - texts["input_ids"].shape[1]
    sides = (room, 0) if padding.on_the_left else (0, room)
    filling = {"input_ids": padding.token}
    return {name: F.pad(values, sides, value=filling.get(name, 0)) for name, values in texts.items()}


def _at_lengths_of(texts: Texts, donors: Donors, form: TextForm, padding: Padding) -> dict[str, Tensor]:
    """Return texts as long as their donors, made of their own words."""
    lengths = inner_tokens(texts).sum(1)
    return next(at_lengths(texts, [lengths[donors.to(lengths.device)]], padding))


def _with_words(texts: Texts, donors: Donors, form: TextForm, padding: Padding, choose: Choice) -> dict[str, Tensor]:
    """Return texts with certain words of their donors in place of their own.

    Args:
        texts: As for `rewritten`.
        donors: As for `rewritten`.
        form: As for `rewritten`.
        padding: What fills the texts up.
        choose: Returns the spans of these words among all words of a text.
    """
    ends = _special_ends(texts, form)
    first, last = _both_ends(texts)
    special = (first & ends[0]) | (last & ends[1])
    ids = torch.where(attended_tokens(texts) & ~special, texts["input_ids"], -1).cpu().numpy()
    every = [_chosen(row, form, choose) for row in ids]
    lenders = {name: values[donors.to(values.device)] for name, values in texts.items()}
    of_donors = [every[donor] for donor in donors.tolist()]
    return with_words_of(texts, lenders, every, of_donors, _most(texts, form), padding, ends)


def _chosen(ids: Int[np.ndarray, " tokens"], form: TextForm, choose: Choice) -> TextWords:
    words = words_among(ids, form.tokenizer.convert_ids_to_tokens)
    return text_words(words, choose(words))


def _special_ends(texts: Texts, form: TextForm) -> tuple[bool, bool]:
    """Return whether texts begin, and end, with a special token.

    Where nobody knows which tokens these are, it is what all texts of the batch begin or end with.
    """
    ids = texts["input_ids"]
    first, last = _both_ends(texts)
    if not form.ends:
        return len(ids[first].unique()) < 2, len(ids[last].unique()) < 2
    special = torch.isin(ids, torch.tensor(sorted(form.ends), device=ids.device))
    return bool(special[first].any()), bool(special[last].any())


def _both_ends(texts: Texts) -> tuple[Bool[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    """Return the first attended token of every text, and the last one."""
    attended = attended_tokens(texts)
    first = attended & (attended.cumsum(1) == 1)
    return first, end_tokens(attended) & ~first


def _most(texts: Texts, form: TextForm) -> int:
    """Return how many tokens a text may have: the model reads texts of this width for sure."""
    return max(form.most, texts["input_ids"].shape[1])


def _punctuation_spans(words: list[TextWord]) -> list[Span]:
    """Return where the punctuation of a text stands: the dots of a link are none."""
    return [word.span for word in outside_markers(words) if is_punctuation(word.text)]


def _marker_spans(words: list[TextWord]) -> list[Span]:
    """Return where the links, names of users, numbers and the like of a text stand."""
    return [marker.span for marker in markers_of(words)]


def _with_punctuation(texts: Texts, donors: Donors, form: TextForm, padding: Padding) -> dict[str, Tensor]:
    return _with_words(texts, donors, form, padding, _punctuation_spans)


def _with_markers(texts: Texts, donors: Donors, form: TextForm, padding: Padding) -> dict[str, Tensor]:
    return _with_words(texts, donors, form, padding, _marker_spans)


def _cased(texts: Texts, donors: Donors, form: TextForm, padding: Padding) -> dict[str, Tensor]:
    """Return texts in the case of their donors; one whose ids the tokenizer does not give back stays as it is."""
    attended = attended_tokens(texts)
    ids = [row[mask].tolist() for row, mask in zip(texts["input_ids"], attended, strict=True)]
    versions = [
        _always(row, form) if version is None else version
        for row, version in zip(ids, in_all_cases(ids, form.tokenizer, _most(texts, form)), strict=True)
    ]
    return written_like(texts, versions, [versions[donor] for donor in donors.tolist()], padding)


def _always(ids: list[int], form: TextForm) -> CasedText:
    """Return a text that is the same in every case, and lends the one that it is written in."""
    return CasedText(style_of(as_written(ids, form.tokenizer)), tuple(tuple(ids) for _ in STYLES))


_REWRITES: dict[str, Callable[[Texts, Donors, TextForm, Padding], dict[str, Tensor]]] = {
    "length": _at_lengths_of,
    "punctuation": _with_punctuation,
    "markers": _with_markers,
    "case": _cased,
}
