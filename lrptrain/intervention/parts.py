"""Where the part of inputs that a finding names lies in other samples, and who is told of it.

A `Region` is about the samples of one evaluation. A part says as much of any other ones: so what a monitor has
confirmed can be swapped in training.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.content import content_tokens
from lrptrain.batch.parts import PROPERTIES, TEXT_PROPERTIES, InputPart, Word
from lrptrain.intervention.pieces import inside_marks
from lrptrain.intervention.regions import Region, image_of, pixels, tokens
from lrptrain.intervention.words import TextWords


def part_of(region: Region, name: str, grid: tuple[int, int] | None, samples: Sequence[Sample]) -> InputPart | None:
    """Return the part that a region of some samples is; None if it is nothing that others have, too.

    Args:
        region: The region.
        name: What a person calls it.
        grid: Rows and columns of the patches of an image; None of texts.
        samples: The samples of the evaluation that it is a region of.
    """
    if region.kind in PROPERTIES or region.kind in TEXT_PROPERTIES:
        return InputPart(region.kind, name)
    if region.kind == "token":
        assert isinstance(region.which, int)
        return InputPart("words", name, words=((region.which,),))
    if region.kind == "place":
        assert isinstance(region.which, int)
        return InputPart("place", name, place=region.which)
    if region.kind == "words":
        return InputPart("words", name, words=_words_of(region, samples))
    if region.kind == "common":
        assert isinstance(region.which, tuple)
        _, rows, columns, *cells = region.which
        return InputPart("patches", name, (rows, columns), tuple(cells))
    if region.kind == "patches" and grid is not None:
        assert isinstance(region.which, tuple)
        return InputPart("patches", name, grid, region.which)
    return None


def where_it_lies(part: InputPart, batch: Mapping[str, Tensor]) -> Bool[Tensor, " batch *area"]:
    """Return where a part lies in other samples: `[batch, height, width]` of images, `[batch, tokens]` of texts.

    Args:
        part: A part that lies somewhere: no property.
        batch: A batch in the contract's form, of images for a part of images, of texts for one of texts.
    """
    assert not part.is_property
    if part.kind == "mark":
        assert part.mark is not None
        return inside_marks(image_of(batch)[1], part.mark)
    if part.kind == "patches":
        return pixels(Region("patches", part.patches), batch, part.grid)
    if part.kind == "place":
        return tokens(Region("place", part.place), batch)
    content = content_tokens(batch)
    inside = torch.zeros_like(content)
    for word in part.words:
        inside |= _occurrences(batch["input_ids"], content, word)
    return inside


def check_medium(parts: Sequence[InputPart], batch: Mapping[str, Any]) -> None:
    """Reject parts of texts in a batch of images, and the other way round.

    Raises:
        ValueError: With what they are of.
    """
    has_images = any(name in batch for name in IMAGES)
    for part in parts:
        if part.is_of_texts == has_images:
            medium = "texts" if part.is_of_texts else "images"
            raise ValueError(f"{part.name} is a part of {medium}, and the batch has {sorted(batch)}")


def _words_of(region: Region, samples: Sequence[Sample]) -> tuple[Word, ...]:
    """Return the words that a region is made of in its samples, each once."""
    words: set[Word] = set()
    for sample, text in zip(samples, region.texts, strict=True):
        assert isinstance(text, TextWords)
        ids = sample.tensors["input_ids"].tolist()
        words |= {tuple(ids[slice(*span)]) for span in text.chosen}
    return tuple(sorted(words))


def _occurrences(token_ids: Tensor, content: Bool[Tensor, "batch tokens"], word: Word) -> Bool[Tensor, "batch tokens"]:
    """Return all tokens of a word wherever it stands among the content tokens."""
    inside = torch.zeros_like(content)
    places = token_ids.shape[1] - len(word) + 1
    if places < 1:
        return inside
    starts = torch.ones_like(content[:, :places])
    for offset, token in enumerate(word):
        window = slice(offset, offset + places)
        starts &= content[:, window] & (token_ids[:, window] == token)
    for offset in range(len(word)):
        inside[:, offset : offset + places] |= starts
    return inside


class Confirmed(NamedTuple):
    """What a monitor has confirmed of a model, for whoever trains it.

    Attributes:
        parts: What it relies on and should not, as of the last evaluation.
        evaluations: How many evaluations there were.
        is_at_chance: Whether the model told classes apart in one of them, and in the last one did not.
    """

    parts: tuple[InputPart, ...] = ()
    evaluations: int = 0
    is_at_chance: bool = False


_noted: WeakKeyDictionary[nn.Module, Confirmed] = WeakKeyDictionary()
_followed: WeakSet[nn.Module] = WeakSet()


def note_confirmed(module: nn.Module, confirmed: Confirmed) -> None:
    """Note what a monitor has confirmed of a module, in place of what was noted before.

    Args:
        module: The module that is trained, without wrappers.
        confirmed: What was confirmed.
    """
    _noted[module] = confirmed


def follow_confirmed(module: nn.Module) -> Confirmed | None:
    """Return what was noted of a module, or of parts of it, and note that its training goes by that.

    Returns:
        None where no monitor notes anything.
    """
    watched = [each for each in module.modules() if each in _noted] if _noted else []
    if not watched:
        return None
    _followed.update(watched)
    noted = [_noted[each] for each in watched]
    parts = tuple(part for each in noted for part in each.parts)
    return Confirmed(parts, sum(each.evaluations for each in noted), any(each.is_at_chance for each in noted))


def is_followed(module: nn.Module) -> bool:
    """Return whether a training goes by what is noted of a module."""
    return module in _followed
