"""From the region of some samples to the part that others have, too, and who is told of it.

A `Region` is about the samples of one evaluation. A part says as much of any other ones: so what a monitor has
confirmed can be swapped in training.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from torch import nn

from lrptrain.batch import Sample
from lrptrain.batch.parts import PROPERTIES, InputPart, Word
from lrptrain.intervention.regions import Region
from lrptrain.intervention.words import TextWords


def part_of(region: Region, name: str, grid: tuple[int, int] | None, samples: Sequence[Sample]) -> InputPart | None:
    """Return the part that a region of some samples is; None if it is nothing that others have, too.

    Args:
        region: The region.
        name: What a person calls it.
        grid: Rows and columns of the patches of an image; None of texts.
        samples: The samples of the evaluation that it is a region of.
    """
    if region.kind in PROPERTIES:
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


def _words_of(region: Region, samples: Sequence[Sample]) -> tuple[Word, ...]:
    """Return the words that a region is made of in its samples, each once."""
    words: set[Word] = set()
    for sample, text in zip(samples, region.texts, strict=True):
        assert isinstance(text, TextWords)
        ids = sample.tensors["input_ids"].tolist()
        words |= {tuple(ids[slice(*span)]) for span in text.chosen}
    return tuple(sorted(words))


_noted: WeakKeyDictionary[nn.Module, tuple[InputPart, ...]] = WeakKeyDictionary()


def note_parts(module: nn.Module, parts: Sequence[InputPart]) -> None:
    """Note what a monitor has confirmed that a model relies on, for whoever trains it.

    Args:
        module: The module that is trained, without wrappers.
        parts: What was confirmed; it takes the place of what was noted before.
    """
    _noted[module] = tuple(parts)


def parts_noted_of(module: nn.Module) -> tuple[InputPart, ...]:
    """Return what was noted of a module, or of a part of it; nothing where no monitor has noted anything."""
    if not _noted:
        return ()
    return tuple(part for each in module.modules() if each in _noted for part in _noted[each])
