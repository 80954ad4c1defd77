"""Series, such as signals of several channels over time: their channels, parts of their time, all outside a mask.

Series are `[batch, channels, time]` or `[batch, time, channels]`: time is the longer axis. What is annotated is a part
of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import Part, Where, image_of, pixels_of
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual.colour import Colour

_QUARTERS = ("first", "second", "third", "last")
Places = Bool[Tensor, "batch channels time"]


@dataclass(frozen=True)
class SeriesPart(Part):
    """Some channels in some part of the time, or what of that lies outside of the evidence."""

    kind: ClassVar[str] = "series part"
    name: str
    role: Role
    first: int
    stop: int
    quarter: int | None = None
    where: Where = "image"

    def locate(self, batch: Batch) -> Places:
        """Return its places."""
        _, series = image_of(batch)
        inside = torch.zeros_like(series, dtype=torch.bool)
        start, end = (0, 4) if self.quarter is None else (self.quarter, self.quarter + 1)
        inside[:, self.first : self.stop, start * series.shape[2] // 4 : end * series.shape[2] // 4] = True
        return inside & pixels_of(self.where, batch)[:, None]

    def children(self) -> Sequence["SeriesPart"]:
        """Return its halves, so that one of many channels is found in few steps, and of one channel its quarters."""
        middle = (self.first + self.stop) // 2
        if self.stop - self.first > 1:
            return [self._part(self.first, middle, self.quarter), self._part(middle, self.stop, self.quarter)]
        return [] if self.quarter is not None else self.quarters()

    def quarters(self) -> list["SeriesPart"]:
        """Return its parts along the time."""
        return [self._part(self.first, self.stop, quarter) for quarter in range(4)]

    def _part(self, first: int, stop: int, quarter: int | None) -> "SeriesPart":
        channels = f"channel {first}" if stop - first == 1 else f"the channels {first} to {stop - 1}"
        time = "" if quarter is None else f"the {_QUARTERS[quarter]} quarter of the series"
        is_all = (first, stop) == (self.first, self.stop) and stop - first > 1
        name = time if is_all else f"{channels}{' in ' if time else ''}{time}"
        return replace(self, name=name, first=first, stop=stop, quarter=quarter)


@dataclass(frozen=True)
class SeriesSurroundings(Surroundings):
    """All of a series that lies outside of the evidence."""

    kind: ClassVar[str] = "series surroundings"
    channels: int = 1

    def locate(self, batch: Batch) -> Places:
        """Return its places."""
        return super().locate(batch)[:, None].expand_as(image_of(batch)[1])

    def children(self) -> Sequence[Cue]:
        """Return its parts."""
        return parts_of_series(self.role, self.channels, self.where)


def parts_of_series(role: Role, channels: int, where: Where = "image") -> list[Cue]:
    """Return quarters of the time, halves of the channels, and what all of a series has in common."""
    level = Colour(f"the level of the channels{'' if where == 'image' else ' outside the annotation'}", role, where)
    whole = SeriesPart("the series", role, 0, channels, None, where)
    return [level, *whole.quarters(), *(whole.children() if channels > 1 else [])]
