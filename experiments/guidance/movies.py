"""The ends of movie reviews, with their rationales."""

from functools import cache

from experiments.data import dataset
from experiments.guidance import texts
from lrptrain.data import EraserDocuments
from lrptrain.data.texts import Example

LENGTH = 128
"""Tokens that a model sees, the last of a document, where reviewers conclude."""


@cache
def documents() -> dict[str, list[Example]]:
    """The official splits, each document cut to its window."""
    source = EraserDocuments(str(dataset("movies")))
    source.setup()
    return {split: [window(example) for example in found] for split, found in source.splits.items()}


def window(example: Example) -> Example:
    """The last tokens of a document, with what of its rationale lies in them; None if nothing does."""
    places = texts.tokenizer()(example.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    cut = places[-(LENGTH - 2) :][0][0]
    spans = tuple((max(start - cut, 0), end - cut) for start, end in example.spans or () if end > cut)
    return Example(example.text[cut:], example.label, spans or None)
