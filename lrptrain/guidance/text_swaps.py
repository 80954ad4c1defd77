"""Swaps of what texts have as a whole: their length, punctuation, links and numbers, or how they are cased.

They are those by which a monitor judges. A text changes its length with them, and with it what the model attends to.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.parts import TextProperty
from lrptrain.guidance.swaps import Swap, Swapped
from lrptrain.intervention.lengths import are_single_texts, inner_tokens
from lrptrain.intervention.rewriting import COLUMNS, rewritten
from lrptrain.cues.donors import random_donors
from lrptrain.cues.text_form import TextForm


class TextReader:
    """What reads texts in order to rewrite them.

    Attributes:
        form: How the texts of the model are made up, as far as it is known before the first batch.
    """

    def __init__(self) -> None:
        self.begin(TextForm())

    def begin(self, form: TextForm) -> None:
        """Begin a training: what earlier texts were tells nothing of these.

        Args:
            form: How its texts are made up.
        """
        self.form = form
        self._are_single = False
        self._tells_cases = False

    def rewritten(
        self,
        kinds: Sequence[TextProperty],
        explained: Tensor,
        arguments: Mapping[str, Any],
        usable: Bool[Tensor, " batch"],
        generator: torch.Generator | None,
        donors: Int[Tensor, " batch"] | None,
    ) -> Swapped:
        """Return texts that take properties of their donors.

        Args:
            kinds: The properties, in the order in which they are swapped.
            explained: The token ids, perhaps others than those among the arguments.
            arguments: All arguments that the step gives the model.
            usable: Which texts take part.
            generator: The random numbers of who gives to whom.
            donors: For every text the index of its donor, perhaps itself; None for random ones.

        Raises:
            ValueError: If the texts of this step cannot be rewritten, with the reason.
        """
        texts = _texts(kinds, explained, arguments)
        for kind in kinds:
            self._check_reading(kind)
        if "case" in kinds and not self._tells_cases:
            self._check_cases(texts)
        usable = usable.to(explained.device) & inner_tokens(texts).any(1)
        rows = usable & (usable.sum() > 1)
        if rows.any():
            self._check_single(kinds, texts)
        takers = random_donors(usable, generator) if donors is None else donors.to(explained.device)
        for kind in kinds:
            texts = rewritten(kind, texts, takers, self.form)
        others = {name: values for name, values in texts.items() if name != "input_ids"}
        return Swapped(texts["input_ids"], rows, others)

    def _check_reading(self, kind: TextProperty) -> None:
        """Reject a swap without what reads the texts.

        Raises:
            ValueError: With the way out.
        """
        tokenizer = self.form.tokenizer
        if kind == "length":
            return
        if tokenizer is None:
            raise ValueError(f"a swap of {kind} reads the texts: pass tokenizer=, that of the model")
        if kind != "case":
            return
        if not callable(tokenizer) or not hasattr(tokenizer, "decode"):
            raise ValueError(
                f"a swap of case writes texts anew, and {type(tokenizer).__name__} cannot: it takes a tokenizer such "
                "as those of transformers, which is called with a text and has decode"
            )

    def _check_cases(self, texts: Mapping[str, Tensor]) -> None:
        """Reject a tokenizer that reads capitals as small letters, by the first texts that have any letters.

        Raises:
            ValueError: If it does.
        """
        tokenizer = self.form.tokenizer
        rows = zip(texts["input_ids"], inner_tokens(texts), strict=True)
        written = [str(tokenizer.decode(ids[inner].tolist())) for ids, inner in rows]
        cased = [text for text in written if text.lower() != text.upper()]
        if not cased:
            return
        self._tells_cases = any(
            tokenizer(text.lower(), add_special_tokens=False)["input_ids"]
            != tokenizer(text.upper(), add_special_tokens=False)["input_ids"]
            for text in cased
        )
        if not self._tells_cases:
            raise ValueError("the tokenizer reads capitals as small letters: there is nothing that case could change")

    def _check_single(self, kinds: Sequence[TextProperty], texts: Mapping[str, Tensor]) -> None:
        """Reject pairs; where nobody knows what a separator is, by the first batch.

        Raises:
            ValueError: If they are pairs.
        """
        if self._are_single and not self.form.ends:
            return
        if not are_single_texts([texts], self.form.ends):
            raise ValueError(
                f"a swap of {_listed(kinds)} is one of single texts, and these are pairs, such as a question and an "
                "answer"
            )
        self._are_single = True


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
    return reader.rewritten((kind,), explained, arguments, usable, generator, donors)


def _texts(kinds: Sequence[TextProperty], explained: Tensor, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the columns of the texts that a step gives its model.

    Raises:
        ValueError: If these are no texts by their ids with an attention mask, or if something else goes by the places
            of their tokens, which move, or by their number.
    """
    swap = f"a swap of {_listed(kinds)} rewrites texts"
    mask = arguments.get("attention_mask")
    if explained.ndim != 2 or explained.is_floating_point():
        raise ValueError(
            f"{swap} by their token ids, and the model is given {tuple(explained.shape)} of {explained.dtype}"
        )
    if not isinstance(mask, Tensor) or mask.shape != explained.shape:
        raise ValueError(
            f"{swap}, which changes how long they are: the step has to give the model an argument attention_mask of "
            "their shape"
        )
    # The ids themselves come under the name that the model has for them; soft labels are no places.
    others = [
        name
        for name, values in arguments.items()
        if isinstance(values, Tensor)
        and values is not explained
        and name not in (*COLUMNS, "label", "labels")
        and (_goes_by_places(values, explained) or _are_lengths(values, mask))
    ]
    if others:
        raise ValueError(f"{swap}, and {', '.join(others)} goes by the places of their tokens: leave it out")
    columns = {name: arguments[name] for name in COLUMNS[1:] if isinstance(arguments.get(name), Tensor)}
    return {"input_ids": explained, **columns}


def _goes_by_places(values: Tensor, explained: Tensor) -> bool:
    """Return whether an argument has a value for every token of every text, or of all alike."""
    return values.ndim > 1 and values.shape[1] == explained.shape[1] and values.shape[0] in (1, len(explained))


def _are_lengths(values: Tensor, mask: Tensor) -> bool:
    """Return whether an argument says how long every text is."""
    lengths = (mask != 0).sum(1)
    return values.shape == lengths.shape and bool((values.to(lengths.device) == lengths).all())


def _listed(kinds: Sequence[TextProperty]) -> str:
    return " and ".join(kinds)
