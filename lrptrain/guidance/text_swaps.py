"""Swaps of what texts have as a whole: their length, punctuation, links and numbers, or how they are cased.

They are those by which a monitor judges. A text changes its length with them, and with it what the model attends to.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.parts import TextProperty
from lrptrain.guidance.swaps import Swap, Swapped
from lrptrain.intervention.rewriting import COLUMNS, rewritten
from lrptrain.intervention.swap import random_donors


class TextReader:
    """What reads texts in order to rewrite them.

    Attributes:
        tokenizer: That of the model's texts; None as long as nobody has named one.
    """

    def __init__(self) -> None:
        self.tokenizer: Any = None

    def rewritten(
        self,
        kinds: Sequence[TextProperty],
        explained: Tensor,
        arguments: Mapping[str, Any],
        donors: Int[Tensor, " batch"],
    ) -> dict[str, Tensor]:
        """Return texts that take properties of their donors, as arguments of the model by name.

        Args:
            kinds: The properties, in the order in which they are swapped.
            explained: The token ids, perhaps others than those among the arguments.
            arguments: All arguments that the step gives the model.
            donors: For every text the index of its donor, perhaps itself.

        Raises:
            ValueError: If the texts of this step cannot be rewritten, with the reason.
        """
        texts = _texts(kinds, explained, arguments)
        if self.tokenizer is None and any(kind != "length" for kind in kinds):
            raise ValueError(f"a swap of {_listed(kinds)} reads the texts: pass tokenizer=, that of the model")
        for kind in kinds:
            texts = rewritten(kind, texts, donors, self.tokenizer)
        return texts


def text_swap(kind: TextProperty, reader: TextReader) -> Swap:
    """Return the swap of one property of texts, for which nothing has to be annotated.

    Args:
        kind: The property.
        reader: What reads the texts.
    """
    return Swap(kind, partial(_exchange, kind, reader), needs_annotation=False, rewrites=True)


def _exchange(
    kind: TextProperty,
    reader: TextReader,
    explained: Tensor,
    annotation: Shaped[Tensor, "batch tokens"],
    margin: int | None,
    generator: torch.Generator | None,
    without_evidence: bool,
    donors: Int[Tensor, " batch"] | None,
    itself: bool,
    arguments: Mapping[str, Any],
) -> Swapped:
    """Give every text a property of another one; see `Swap`."""
    usable = (annotation != IGNORED).flatten(1).any(1)
    takers = random_donors(usable, generator) if donors is None else donors
    texts = reader.rewritten((kind,), explained, arguments, takers)
    return as_swapped(texts, usable & (usable.sum() > 1))


def as_swapped(texts: dict[str, Tensor], rows: Tensor) -> Swapped:
    """Return rewritten texts as the input of a model and its other arguments.

    Args:
        texts: As `TextReader.rewritten` returns them.
        rows: Which texts took part.
    """
    return Swapped(texts["input_ids"], rows, {name: values for name, values in texts.items() if name != "input_ids"})


def _texts(kinds: Sequence[TextProperty], explained: Tensor, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the columns of the texts that a step gives its model.

    Raises:
        ValueError: If these are no texts by their ids with an attention mask, or if something else goes by the places
            of their tokens, which move.
    """
    swap = f"a swap of {_listed(kinds)} rewrites texts"
    mask = arguments.get("attention_mask")
    if explained.ndim != 2 or explained.is_floating_point():
        raise ValueError(
            f"{swap} by their token ids, and the model is given {tuple(explained.shape)} of {explained.dtype}"
        )
    if not isinstance(mask, Tensor) or mask.shape != explained.shape:
        raise ValueError(f"{swap}, which changes how long they are: the step has to give the model an attention_mask")
    # Replaced as a whole below: the ids come under the name that the model has for them.
    others = [
        name
        for name, values in arguments.items()
        if isinstance(values, Tensor)
        and name not in COLUMNS
        and values.shape[:2] == explained.shape
        and values is not explained
    ]
    if others:
        raise ValueError(f"{swap}, and {', '.join(others)} goes by the places of their tokens: leave it out")
    columns = {name: arguments[name] for name in COLUMNS[1:] if isinstance(arguments.get(name), Tensor)}
    return {"input_ids": explained, **columns}


def _listed(kinds: Sequence[TextProperty]) -> str:
    return " and ".join(kinds)
