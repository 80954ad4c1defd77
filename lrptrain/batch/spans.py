"""Rationales that people marked as characters or words, brought to the tokens of a tokenizer."""

import re
import warnings
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED, spans_to_rationale
from lrptrain.terminal import WrappedWarning

Span = tuple[int, int]
_FORM = "a 'rationale' of spans or words is a list that has a list of (start, end), or of words, for each sample"


def token_rationale(rationale: Any, batch: Mapping[str, Any]) -> Any:
    """Return a rationale with one value per token; one that has this form already, as it is.

    A sample whose spans or words are wrong is named in a warning and has no annotation; if those of all annotated
    samples are, the form is wrong. Of pairs of texts, spans and words belong to the first; the second is ignored.

    Args:
        rationale: One value per token, with padding or without it; or for each sample its spans (start, end) in
            characters, end excluded, or its words; None or an empty list for a sample without an annotation.
        batch: The batch. Spans need the tokenizer's `offset_mapping` (`return_offsets_mapping=True`) in it, padded or
            not, words also the `text`.
    """
    ids = torch.as_tensor(batch["input_ids"])
    if isinstance(rationale, Tensor):
        if rationale.shape == ids.shape or rationale.ndim not in (2, 3):
            return rationale
        rationale = list(rationale)
    if isinstance(rationale, str):
        raise ValueError(f"{_FORM}, not the text {rationale[:60]!r}")
    if not isinstance(rationale, Sequence):
        return rationale
    if ids.ndim == 3:
        return _of_chunks(rationale, ids)
    samples = [sample.tolist() if isinstance(sample, Tensor) else sample for sample in rationale]
    if not any(sample is not None and (isinstance(sample, Number) or len(sample)) for sample in samples):
        return torch.full(ids.shape, IGNORED, dtype=torch.uint8)
    return _marked_tokens(samples, batch) if _marks_characters(samples, batch) else _per_token(samples, batch)


def _of_chunks(samples: Sequence[Any], ids: Tensor) -> Tensor:
    """Return the rationale of texts in chunks, of which each sample has a value per token, padded or not."""
    rationale = torch.full(ids.shape, IGNORED, dtype=torch.uint8)
    for row, sample in enumerate(samples):
        values = torch.as_tensor([] if sample is None else sample)
        if values.numel() and (
            values.ndim != 2 or any(has > room for has, room in zip(values.shape, ids.shape[1:], strict=True))
        ):
            raise ValueError(
                f"a 'rationale' of texts in chunks has a value per token, {list(ids.shape[1:])} here, not "
                f"{list(values.shape)}"
            )
        if values.numel():
            rationale[row, : len(values), : values.shape[1]] = values
    return rationale


def _marks_characters(samples: Sequence[Any], batch: Mapping[str, Any]) -> bool:
    """Return whether samples have spans or words, not one number per token."""
    items = [item for sample in samples if isinstance(sample, Sequence) for item in sample]
    words = any(isinstance(item, str) for item in items)
    spans = any(isinstance(item, Sequence) and not isinstance(item, str) for item in items)
    rows, tokens = torch.as_tensor(batch["input_ids"]).shape[:2]
    if any(isinstance(item, Tensor) and item.ndim for item in items) or ((words or spans) and len(samples) != rows):
        raise ValueError(
            f"{_FORM}, {rows} here, not {len(samples)}: PyTorch's default_collate turns lists of spans or words round; "
            "return them as they are in the dataloader's collate_fn"
        )
    if not (words or spans) and tokens != 2 and {len(s) for s in samples if isinstance(s, Sequence)} == {2}:
        raise ValueError(f"{_FORM}: put each single (start, end) in a list, [(start, end)]")
    return words or spans


def _per_token(samples: Sequence[Any], batch: Mapping[str, Any]) -> list[Any]:
    """Return one value per token, also for samples without any."""
    rows = _at_tokens(samples, batch, IGNORED)
    tokens = torch.as_tensor(batch["input_ids"]).shape[1]
    wrong = {
        i: f"it has {len(row)} values, and its text {tokens} tokens with padding: tokenize and cut both together"
        for i, row in enumerate(rows)
        if row is not None and len(row) not in (0, tokens)
    }
    _tell(wrong, samples, batch)
    return [[IGNORED] * tokens if i in wrong or row is None or len(row) == 0 else row for i, row in enumerate(rows)]


def _at_tokens(samples: Sequence[Any], batch: Mapping[str, Any], padding: Any) -> list[Any]:
    """Return what has an item for each of a text's own tokens with one for each of the batch, wherever padding is."""
    mask = batch.get("attention_mask")
    attended = torch.ones_like(torch.as_tensor(batch["input_ids"])) if mask is None else torch.as_tensor(mask)
    rows = []
    for sample, row in zip(samples, attended.flatten(1).bool().tolist(), strict=True):
        items = sample.tolist() if isinstance(sample, Tensor) else sample
        if items and len(items) < len(row) and (mask is None or len(items) == sum(row)):
            own = iter(items)
            items = [next(own, padding) if attends else padding for attends in row]
        rows.append(items)
    return rows


def _marked_tokens(samples: Sequence[Any], batch: Mapping[str, Any]) -> Tensor:
    """Return the rationale of spans or words, one value per token."""
    if "offset_mapping" not in batch:
        raise ValueError(
            "a 'rationale' of spans or words needs the tokenizer's 'offset_mapping' in the batch: call the tokenizer "
            "with return_offsets_mapping=True"
        )
    texts = batch.get("text")
    if any(isinstance(item, str) for sample in samples if isinstance(sample, Sequence) for item in sample) and (
        not isinstance(texts, Sequence) or len(texts) != len(samples)
    ):
        raise ValueError("a 'rationale' of words needs the 'text' of every sample in the batch; spans need none")
    spans: list[list[Span] | None] = []
    problems: dict[int, str] = {}
    for row, sample in enumerate(samples):
        try:
            spans.append(_sample_spans(sample, texts[row] if isinstance(texts, Sequence) else None))
        except ValueError as error:
            spans.append(None)
            problems[row] = str(error)
    _tell(problems, samples, batch)
    return spans_to_rationale(spans, _first_text(batch))


def _sample_spans(sample: Any, text: Any) -> list[Span] | None:
    if sample is None or (not isinstance(sample, str) and len(sample) == 0):
        return None
    if isinstance(sample, str):
        raise ValueError(f"its rationale is the text {sample[:60]!r}: put words in a list, [{sample[:60]!r}]")
    if all(isinstance(item, str) for item in sample):
        if not isinstance(text, str):
            raise ValueError(f"its 'text' is no text but {type(text).__name__}; of a pair, pass the first")
        return word_spans(text, sample)
    spans = [tuple(int(bound) for bound in item) for item in sample if not isinstance(item, str)]
    for span in spans:
        if len(spans) < len(sample) or len(span) != 2 or not 0 <= span[0] < span[1]:
            raise ValueError(f"a span is (start, end) with 0 <= start < end, not {span}")
    return [(span[0], span[1]) for span in spans]


def _tell(problems: Mapping[int, str], samples: Sequence[Any], batch: Mapping[str, Any]) -> None:
    """Name the samples whose rationale cannot be used."""
    if not problems:
        return
    ids = batch.get("sample_id")
    named = [f"{ids[row] if ids is not None else f'{row} of a batch'}: {problem}" for row, problem in problems.items()]
    annotated = sum(sample is not None and len(sample) > 0 for sample in samples)
    if len(problems) == annotated:
        raise ValueError(f"no 'rationale' of a batch can be used; sample {named[0]}")
    warnings.warn(
        f"{len(problems)} of {annotated} rationales of a batch cannot be used; their samples count as without one: "
        f"sample {'; sample '.join(named[:3])}",
        WrappedWarning,
        stacklevel=2,
    )


def _first_text(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch tokens 2"]:
    """Return the offsets, in which a second text covers no characters: its positions are those of another text.

    A second text begins where `token_type_ids` turn from 0 to 1, or where the offsets begin again:

        [CLS]  a     film   [SEP]  it    is    [SEP]
        (0,0)  (0,1) (2,6)  (0,0)  (0,2) (3,5) (0,0)
    """
    offsets = torch.as_tensor(
        _at_tokens(batch["offset_mapping"], batch, (0, 0)), device=torch.as_tensor(batch["input_ids"]).device
    )
    starts, ends = offsets.unbind(-1)
    covers = ends > starts
    gaps = (~covers).cumsum(1)
    # The highest values of earlier tokens that cover characters, -1 before the first of them.
    earlier = [
        torch.nn.functional.pad(torch.where(covers, values, -1).cummax(1).values[:, :-1], (1, 0), value=-1)
        for values in (starts, gaps)
    ]
    # Tokens that begin at one character follow each other within a text, and have a separator between two.
    again = (starts < earlier[0]) | ((starts == earlier[0]) & (gaps > earlier[1]))
    second = (covers & again).cumsum(1) > 0
    types = batch.get("token_type_ids")
    if isinstance(types, Tensor) and types.shape == starts.shape:
        types = types.to(offsets.device)
        second |= (types == 1) & (covers & (types == 0)).any(1, keepdim=True)
    return offsets.masked_fill(second[..., None], 0)


def word_spans(text: str, words: Sequence[str]) -> list[Span]:
    """Return the characters of every occurrence of the words in a text, whole words only."""
    spans: list[Span] = []
    for word in words:
        # Not \b: a word may begin or end with a sign, such as "wow!".
        matches = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)]
        if not word or not matches:
            raise ValueError(f"the rationale's {word!r} is no word of the text {text[:60]!r}")
        spans += matches
    return sorted(spans)
