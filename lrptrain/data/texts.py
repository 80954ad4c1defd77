"""Texts with the places of their evidence, and the batches they form."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from lrptrain.batch.annotations import IGNORED, spans_to_rationale
from lrptrain.data.common import SplitDataModule, loader
from lrptrain.models.pretrained import load_pretrained


class Example(NamedTuple):
    """A text, its class index, and the characters (start, end) of its evidence, or `None` without annotation."""

    text: str
    label: int
    spans: tuple[tuple[int, int], ...] | None


def fast_tokenizer(source: str) -> Any:
    """Load a tokenizer that knows which characters a token stands for.

    Raises:
        OSError: If it can be found neither locally nor on the hub.
        ValueError: If it is not a fast one.
    """
    tokenizer = load_pretrained("AutoTokenizer", source)
    if not tokenizer.is_fast:
        raise ValueError(f"rationales need a fast tokenizer (with offsets), {source!r} is not")
    return tokenizer


def collate_texts(samples: Sequence[tuple[int, Example]], tokenizer: Any, max_length: int) -> dict[str, torch.Tensor]:
    """Tokenise (sample id, example) pairs, padded to the longest.

    Evidence that truncation removes wholly makes a sample one without annotation.

    Returns:
        `input_ids`, `attention_mask` int64 `[B, T]`, `rationale` uint8 `[B, T]` (1 evidence, 0 not, 255 for special
        tokens, padding and samples without annotation), `label` and `sample_id` int64 `[B]`.
    """
    identifiers, examples = zip(*samples, strict=True)
    encoded = tokenizer(
        [example.text for example in examples],
        padding=True,
        truncation=True,
        max_length=max_length,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    # offset_mapping is [B, T, 2]: the first character of each token and the one after its last.
    rationale = spans_to_rationale([example.spans for example in examples], encoded["offset_mapping"])
    # Without any token of evidence a sample would count as "nothing is evidence", which nobody has said.
    lost = (rationale != 1).all(dim=1, keepdim=True)
    return {
        "input_ids": encoded["input_ids"],
        "attention_mask": encoded["attention_mask"],
        "rationale": rationale.masked_fill(lost, IGNORED),
        "label": torch.tensor([example.label for example in examples]),
        "sample_id": torch.tensor(identifiers),
    }


def text_loader(
    examples: Sequence[Example],
    tokenizer: Any,
    max_length: int,
    batch_size: int,
    num_workers: int = 0,
    shuffle: bool = False,
) -> DataLoader[Any]:
    """Return a loader of batches as `collate_texts` makes them; the sample id is the index in `examples`."""
    batch = partial(collate_texts, tokenizer=tokenizer, max_length=max_length)
    numbered: Any = list(enumerate(examples))
    return loader(numbered, batch_size, num_workers, shuffle, batch)


class TextDataModule(SplitDataModule):
    """What datamodules of texts share; a subclass fills `class_names`, `tokenizer` and `splits` in `setup`.

    Args:
        tokenizer: Folder or hub name of a fast tokenizer, or `"minilm"`.
        max_length: Tokens at most, special ones included.
        batch_size: Texts per batch.
        num_workers: Worker processes of each loader.

    Attributes:
        tokenizer: The tokenizer; None before `setup`.
    """

    def __init__(self, tokenizer: str, max_length: int, batch_size: int, num_workers: int) -> None:
        super().__init__(batch_size, num_workers)
        self.tokenizer_source = tokenizer
        self.max_length = max_length
        self.tokenizer: Any = None

    def loader_of(self, split: str, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader of batches as `collate_texts` makes them."""
        examples = self.splits[split]
        return text_loader(examples, self.tokenizer, self.max_length, self.batch_size, self.num_workers, shuffle)
