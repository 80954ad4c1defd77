"""Faults that the monitor of the same run finds: they are swapped from then on."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lrptrain.cues.cue import Cue
from lrptrain.cues.followed import Known
from lrptrain.cues.kinds import restored
from lrptrain.cues.mark import Mark
from lrptrain.cues.row_mark import RowMark
from lrptrain.cues.texts import Language

IN_A_ROW = 3
"""So many evaluations in a row must show it: a model that has lost a shortcut may guess for one or two, before
it learns what is harder ("A mark that was the object" in experiments/LOG.md)."""


class FollowedCues:
    """What a monitor finds, from then on: but for what the model cannot do without.

    A monitor can be wrong. So where the answers are no better than guessing for `IN_A_ROW` evaluations, what came to be
    swapped last is swapped no more.

    Attributes:
        cues: What is swapped.
        dropped: What is swapped no more.
        inputs: The inputs of the model in which they lie, as far as anybody heard.
    """

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.cues: tuple[Cue, ...] = ()
        self.dropped: tuple[Cue, ...] = ()
        self.inputs: frozenset[str] = frozenset()
        self._additions: list[list[Cue]] = []
        self._evaluations = self._at_chance = 0
        self._saved: Mapping[str, Any] | None = None

    def follow(self, known: Known) -> str:
        """Take what a monitor knows by now into account, and return what is to be said of it; "" for nothing."""
        if known.evaluations == self._evaluations:
            return ""
        self._evaluations = known.evaluations
        self.inputs |= known.inputs
        self._at_chance = self._at_chance + 1 if known.is_at_chance else 0
        if self._additions and self._at_chance >= IN_A_ROW:
            self._at_chance = 0
            last = self._additions.pop()
            self.dropped = (*self.dropped, *last)
            self.cues = tuple(cue for cue in self.cues if cue not in last)
            return (
                f"without {names_of(last)} the answers were no better than guessing in {IN_A_ROW} evaluations: it may "
                "be what the samples are about, and is swapped no more. If it is a shortcut, train anew with "
                "swap=monitor.findings"
            )
        new = self._add(cue for cue in known.cues if not self._is_dropped(cue))
        if not new:
            return ""
        self._additions.append(new)
        self._at_chance = 0  # what came before says nothing of these
        return f"from here on, samples swap what the monitor has found: {names_of(new)}"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues, as plain values."""
        if self._saved is not None:
            return dict(self._saved)
        return {"cues": [cue.to_dict() for cue in self.cues], "dropped": [cue.to_dict() for cue in self.dropped]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run, once `restore` is called."""
        self._saved = state

    def restore(self, language: Callable[[], Language]) -> None:
        """Make the cues of a loaded state."""
        if self._saved is None:
            return
        cues, dropped = (
            tuple(restored(values, language) for values in self._saved.get(name, ())) for name in ("cues", "dropped")
        )
        self._saved = None
        self.dropped = dropped
        if added := self._add(cues):
            self._additions = [added]

    def _add(self, cues: Iterable[Cue]) -> list[Cue]:
        """Add what is not there yet, and return it; what was swapped once stays, or the model would use it again."""
        new: list[Cue] = []
        for cue in cues:
            if not any(_is_part(cue, whole) for whole in (*self.cues, *new)):
                new.append(cue)
        self.cues = (*self.cues, *new)
        return new

    def _is_dropped(self, cue: Cue) -> bool:
        """Return whether a cue is one of those that were dropped; of marks each picture, or row, is another one."""
        kind = next((each for each in (Mark, RowMark) if isinstance(cue, each)), ())
        return any(_is_part(cue, each) or isinstance(each, kind) for each in self.dropped)


def _is_part(cue: Cue, whole: Cue) -> bool:
    return cue == whole or any(_is_part(cue, child) for child in whole.children())


def names_of(cues: Iterable[Cue]) -> str:
    """Return what people call some cues, in one line."""
    return ", ".join(dict.fromkeys(cue.name for cue in cues))
