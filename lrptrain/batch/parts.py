"""Which part of every input something is: in a form that holds for samples that no one has looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from lrptrain.batch.content import content_tokens
from lrptrain.batch.reading import IMAGES

Property = Literal["statistics", "detail", "shading", "edges"]
PROPERTIES: tuple[Property, ...] = get_args(Property)
"""What images have as a whole, or along their edges, and can take from each other."""
Word = tuple[int, ...]
"""A word by its token ids."""


@dataclass(frozen=True)
class InputPart:
    """A part of every input.

    Attributes:
        kind: `"patches"` of an image, `"words"` of a text wherever they stand, a `"place"` in a text, or a property of
            images: `"statistics"`, `"detail"`, `"shading"` or `"edges"`.
        name: What a person calls it, such as `the image's top left corner`.
        grid: For `"patches"` the rows and columns of all patches; (0, 0) else.
        patches: For `"patches"` the indices of those that are meant, row by row.
        words: For `"words"` each of them by its token ids.
        place: For `"place"` 0 for the first content token, -1 for the last, and so on.
    """

    kind: Literal["patches", "words", "place", Property]
    name: str = ""
    grid: tuple[int, int] = (0, 0)
    patches: tuple[int, ...] = ()
    words: tuple[Word, ...] = ()
    place: int = 0

    @property
    def is_property(self) -> bool:
        """Whether it lies nowhere in particular."""
        return self.kind in PROPERTIES

    @property
    def is_of_texts(self) -> bool:
        """Whether it is a part of texts, and not of images."""
        return self.kind in ("words", "place")

    def lies_within(self, other: "InputPart") -> bool:
        """Return whether another part is as much or more of every input, whatever either is called."""
        if (self.kind, self.grid, self.place) != (other.kind, other.grid, other.place):
            return False
        return {*self.patches} <= {*other.patches} and {*self.words} <= {*other.words}

    def lies_at(self, batch: Mapping[str, Tensor]) -> Bool[Tensor, " batch *area"]:
        """Return where it lies in other samples: `[batch, height, width]` of images, `[batch, tokens]` of texts.

        Args:
            batch: A batch in the contract's form, of images for a part of images, of texts for one of texts.
        """
        assert not self.is_property
        if self.kind == "patches":
            return inside_patches(self.patches, self.grid, next(batch[name] for name in IMAGES if name in batch))
        content = content_tokens(batch)
        if self.kind == "place":
            return content & (places_in_text(content, from_end=self.place < 0) == self.place)
        inside = torch.zeros_like(content)
        for word in self.words:
            inside |= _occurrences(batch["input_ids"], content, word)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "InputPart":
        """Return the inverse of `to_dict`, after JSON has made lists of tuples."""
        lists = {
            "grid": tuple(values["grid"]),
            "patches": tuple(values["patches"]),
            "words": tuple(tuple(word) for word in values["words"]),
        }
        return cls(**{**values, **lists})


def inside_patches(patches: Sequence[int], grid: tuple[int, int], images: Tensor) -> Bool[Tensor, "batch height width"]:
    """Return the pixels of some patches, the same in every image.

    Args:
        patches: The indices of the patches, row by row.
        grid: Rows and columns of all patches.
        images: The images, `[batch, channels, height, width]`.
    """
    cells = torch.zeros(grid[0] * grid[1], device=images.device)
    cells[list(patches)] = 1
    size = (images.shape[-2], images.shape[-1])
    inside = F.interpolate(cells.view(1, 1, *grid), size, mode="nearest-exact").to(torch.bool)
    return inside[:, 0].expand(len(images), -1, -1)


def places_in_text(content: Bool[Tensor, "batch tokens"], from_end: bool) -> Int[Tensor, "batch tokens"]:
    """Return the place of every content token among those of its text: 0, 1, ...; from the end ..., -2, -1."""
    # e.g. content 0 1 1 1 0 counts -1 0 1 2 2 from the front and, less its length of 3, -4 -3 -2 -1 -1 from the back.
    forward = content.cumsum(1) - 1
    return forward - content.sum(1, keepdim=True) if from_end else forward


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
