"""Which places of a graph come from the explained input."""

from typing import Any

from torch import Tensor


class GraphPlaces:
    """The places in the graph of all that depends on the input, as far as a tape has made it."""

    def __init__(self) -> None:
        self._dependent: set[Any] = set()
        # Of others, whether they lead to one.
        self._leading: dict[Any, bool] = {}

    def add(self, place: Any) -> None:
        """Note the place of something that depends on the input."""
        self._dependent.add(place)

    def lead_to_input(self, start: Any, leaf: Tensor | None) -> bool:
        """Whether a graph leads to a noted place; that of a cache of an earlier call ends in parameters."""
        pending = [start]
        seen = list[Any]()
        while pending:
            place = pending.pop()
            if place in self._leading:
                leads = self._leading[place]
            else:
                self._leading[place] = False  # until it turns out to
                seen.append(place)
                leads = place in self._dependent or getattr(place, "variable", self) is leaf
                pending.extend(before for before, _ in place.next_functions if before is not None)
            if leads:
                for passed in seen:
                    del self._leading[passed]
                self._leading[start] = True
                return True
        return False
