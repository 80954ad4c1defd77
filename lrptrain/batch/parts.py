"""Which part of every input a finding names, in a form that holds for samples that no one has looked at.

Where that part lies in other samples, `lrptrain.intervention.parts` says: reading a record needs none of it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Property = Literal["statistics", "detail", "shading", "edges"]
PROPERTIES: tuple[Property, ...] = get_args(Property)
"""What images have as a whole, or along their edges, and can take from each other."""
TextProperty = Literal["length", "punctuation", "markers", "case"]
TEXT_PROPERTIES: tuple[TextProperty, ...] = get_args(TextProperty)
"""What texts have as a whole, and can take from each other: see `lrptrain.intervention.rewriting`."""
LARGEST_MARK = 0.08
"""A mark that covers a larger share of the image, with its rim, is swapped only if a person says so. Those of
experiments/guidance cover up to 0.04; a square of 10 of 32 pixels that was all there was to see covered 0.14."""
Word = tuple[int, ...]
"""A word by its token ids."""


@dataclass(frozen=True)
class MarkPicture:
    """How a mark looks at a few points, and how far it reaches around them.

    Attributes:
        values: What the channels have at each point, one channel behind the other, in their standard deviations.
        spread: The standard deviation of each channel.
        factor: The points are means over squares of so many pixels a side,
        stride: which begin in every so-many-th row and column of pixels,
        step: and so many of which lie between two points.
        reach: Top, left, bottom and right of the mark, in pixels from the top left corner of its first point.
        size: Height and width of the images that it was seen in.
    """

    values: tuple[float, ...]
    spread: tuple[float, ...]
    factor: int
    stride: int
    step: int
    reach: tuple[int, int, int, int]
    size: tuple[int, int]

    @property
    def share(self) -> float:
        """Which share of an image it covers, in [0, 1], its rim included."""
        top, left, bottom, right = self.reach
        return (bottom - top) * (right - left) / (self.size[0] * self.size[1])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "MarkPicture":
        """Return a picture read from JSON, which has lists for tuples."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class InputPart:
    """A part of every input.

    Attributes:
        kind: `"patches"` of an image, a `"mark"` wherever it lies, `"words"` of a text wherever they stand, a `"place"`
            in a text; a property of images: `"statistics"`, `"detail"`, `"shading"` or `"edges"`; or one of texts:
            `"length"`, `"punctuation"`, `"markers"` (links, numbers and the like) or `"case"`.
        name: What a person calls it, such as `the image's top left corner`.
        grid: For `"patches"` the rows and columns of all patches; (0, 0) else.
        patches: For `"patches"` the indices of those that are meant, row by row.
        mark: For `"mark"` how it looks.
        words: For `"words"` each of them by its token ids.
        place: For `"place"` 0 for the first content token, -1 for the last, and so on.
    """

    kind: Literal["patches", "mark", "words", "place", Property, TextProperty]
    name: str = ""
    grid: tuple[int, int] = (0, 0)
    patches: tuple[int, ...] = ()
    mark: MarkPicture | None = None
    words: tuple[Word, ...] = ()
    place: int = 0

    @property
    def is_property(self) -> bool:
        """Whether it lies nowhere in particular."""
        return self.kind in (*PROPERTIES, *TEXT_PROPERTIES)

    @property
    def may_be_the_object(self) -> bool:
        """Whether it is a mark so large that it may be what the images are about, as a sign or a logo is."""
        return self.mark is not None and self.mark.share > LARGEST_MARK

    @property
    def is_of_texts(self) -> bool:
        """Whether it is a part of texts, and not of images."""
        return self.kind in ("words", "place", *TEXT_PROPERTIES)

    def lies_within(self, other: "InputPart") -> bool:
        """Return whether another part is as much or more of every input, whatever either is called."""
        if (self.kind, self.grid, self.place, self.mark) != (other.kind, other.grid, other.place, other.mark):
            return False
        return {*self.patches} <= {*other.patches} and {*self.words} <= {*other.words}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "InputPart":
        """Return the inverse of `to_dict`, after JSON has made lists of tuples."""
        return cls(
            kind=values["kind"],
            name=values["name"],
            grid=(values["grid"][0], values["grid"][1]),
            patches=tuple(values["patches"]),
            mark=MarkPicture.from_dict(values["mark"]) if values["mark"] else None,
            words=tuple(tuple(word) for word in values["words"]),
            place=values["place"],
        )
