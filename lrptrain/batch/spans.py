"""Rationales that people marked as characters or words, brought to the tokens of a tokenizer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lrptrain.batch.annotations import spans_to_rationale

Span = tuple[int, int]


def token_rationale(rationale: Any, batch: Mapping[str, Any]) -> Any:
    """Return a rationale with one value per token; one that has this form already, as it is.

    Args:
        rationale: One value per token, `[batch, tokens]`; or for each sample its spans (start, end) in characters, end
            excluded, or its words; None for a sample without an annotation.
        batch: The batch. Spans need the tokenizer's `offset_mapping` (`return_offsets_mapping=True`) in it, words also
            the `text`.

    Raises:
        ValueError: If spans or words come without what they need, or a word is not in its text.
    """
    if isinstance(rationale, Tensor) or not isinstance(rationale, Sequence):
        return rationale
    marks = [sample for sample in rationale if sample is not None]
    items = [item for sample in marks if isinstance(sample, Sequence) for item in sample]
    words = any(isinstance(item, str) for item in items)
    spans = any(isinstance(item, Sequence) and not isinstance(item, str) for item in items)
    if not (words or spans):
        return rationale  # numbers, one per token
    if "offset_mapping" not in batch:
        raise ValueError(
            "a 'rationale' of spans or words needs the tokenizer's 'offset_mapping' in the batch: call the tokenizer "
            "with return_offsets_mapping=True"
        )
    if words:
        texts = batch.get("text")
        if not isinstance(texts, Sequence) or len(texts) != len(rationale):
            raise ValueError("a 'rationale' of words needs the 'text' of every sample in the batch; spans need none")
        rationale = [
            None if sample is None else word_spans(text, sample) for text, sample in zip(texts, rationale, strict=True)
        ]
    return spans_to_rationale(rationale, torch.as_tensor(batch["offset_mapping"]))


def word_spans(text: str, words: Sequence[str]) -> list[Span]:
    """Return the characters of every occurrence of the words in a text, whole words only.

    Args:
        text: The text.
        words: Words or phrases, as they stand in the text; upper and lower case are the same.

    Raises:
        ValueError: If one of them is not in the text.
    """
    spans: list[Span] = []
    for word in words:
        # Not \b: a word may begin or end with a sign, such as "wow!".
        found = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)]
        if not word or not found:
            raise ValueError(f"the rationale's {word!r} is no word of the text {text[:60]!r}")
        spans += found
    return sorted(spans)
