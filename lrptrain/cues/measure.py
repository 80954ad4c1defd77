"""The effect of a cue: how far answers move when samples take it from another sample."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

from lrptrain.batch import Sample, collate
from lrptrain.batch.call import IMAGES, TEXTS, rows_of
from lrptrain.batch.reading import CONTRACT
from lrptrain.cues.cue import Batch, Cue

Rows = Int[np.ndarray, " n"]
Probabilities = Callable[[Batch], Float[np.ndarray, "batch classes"]]
FEWEST_SAMPLES = 8
"""Of fewer samples no interval is told: Student's is that of a normal mean, and effects lie in [-1, 1]."""
FIRST_LOOK = 12
"""So many samples are measured first, then as many again, and so on, until the verdict is sure.

Of twelve that do not move at all the interval reaches to 2 points (`effect_of`), of eight to more than 5, which matter.
"""


class MeasureError(RuntimeError):
    """A cue cannot be exchanged, or the model cannot take what comes of it."""


class Effect(NamedTuple):
    """The effect of a cue on some samples.

    Attributes:
        mean: The mean over the samples of `p(answer | cue of a donor with that answer) - p(answer | cue of a donor
            with another)`, in [-1, 1]; nan without samples.
        low: The lower end of its interval.
        high: The upper end.
        samples: The number of samples in which the two differ.
    """

    mean: float
    low: float
    high: float
    samples: int


def effect_of(values: Float[np.ndarray, " n"], level: float) -> Effect:
    """Return the mean of the values that are not nan, with Student's interval.

    Args:
        values: The effect on each sample.
        level: The probability that the mean lies beyond either end, in (0, 0.5).
    """
    values = values[~np.isnan(values)]
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < FEWEST_SAMPLES:
        return Effect(mean, -1.0, 1.0, count)
    # Of n effects that are all alike the spread is 0, and one of the next n could still be anything: a sample more at
    # either end of the range is added, as the "plus four" interval of proportions does (Agresti & Coull 1998).
    padded = np.concatenate([values, [mean - 1 / count, mean + 1 / count]])
    reach = float(stats.t.ppf(1 - level, count - 1) * padded.std(ddof=1) / math.sqrt(count))
    return Effect(mean, max(mean - reach, -1.0), min(mean + reach, 1.0), count)


def donors_for(answers: Rows, among: Rows, same: bool, seed: int) -> Rows:
    """Return for each sample a random other one that has the same answer, or another one; -1 where there is none.

    Each gives about as often as any other: one odd sample would else be the donor of many.

    Args:
        answers: The answer of every sample.
        among: The samples that take and give.
        same: Whether the donor has the same answer.
        seed: The seed of the draw.
    """
    rng = np.random.default_rng([seed, same])
    donors = np.full(len(answers), -1)
    for answer in np.unique(answers[among]):
        takers = rng.permutation(among[answers[among] == answer])
        givers = takers if same else rng.permutation(among[answers[among] != answer])
        if same:
            # Around a random cycle, so that nobody is its own donor.
            donors[takers] = np.roll(givers, 1) if len(givers) > 1 else -1
        elif len(givers):
            donors[takers] = np.resize(givers, len(takers))
    return donors


class Measure:
    """Measures the effects of cues on the same samples.

    Args:
        samples: The samples.
        answers: What the model answers to each, as a class.
        probabilities: Returns the class probabilities of a batch, without gradients.
        device: Where the model is.
        batch_size: Samples of a forward pass.
        seed: The seed of the donors.
        mine: The samples that this process measures; None for all.
        gather: Returns the values of all processes.

    Attributes:
        passes: How many samples the model has been given so far, in this process.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        answers: Rows,
        probabilities: Probabilities,
        device: torch.device | str = "cpu",
        batch_size: int = 32,
        seed: int = 0,
        mine: Rows | None = None,
        gather: Callable[[Any], list[Any]] = lambda value: [value],
    ) -> None:
        self.samples = samples
        self.answers = answers
        self.passes = 0
        self._probabilities = probabilities
        self._device = device
        self._batch_size = batch_size
        self._seed = seed
        self._mine = mine
        self._gather = gather

    @torch.no_grad()
    def effects(self, cue: Cue, rows: Rows, among: Rows) -> Float[np.ndarray, " n"]:
        """Return the effect of a cue on each of some samples; nan where both donors' cues are the same.

        Every process has to call it, with the same cue and samples.

        Args:
            cue: The cue.
            rows: The samples that take it.
            among: The samples that may give it.

        Raises:
            MeasureError: If it cannot be measured, in whichever process.
        """
        like, unlike = (donors_for(self.answers, among, same, self._seed) for same in (True, False))
        mine = rows if self._mine is None else rows[np.isin(rows, self._mine)]
        split = [mine[start : start + self._batch_size] for start in range(0, len(mine), self._batch_size)]
        problem, cause, measured = "", None, np.empty(0)
        try:
            measured = np.concatenate([np.empty(0), *(self._effects(cue, x, like[x], unlike[x]) for x in split)])
        except Exception as error:
            problem, cause = f"{type(error).__name__}: {error}", error
        # Also after a failure: the other processes wait for this one.
        parts = self._gather((mine, measured, problem))
        if first := next((each for *_, each in parts if each), ""):
            raise MeasureError(first) from cause
        values = np.full(len(self.samples), np.nan)
        for where, found, _ in parts:
            values[where] = found
        return values[rows]

    @torch.no_grad()
    def example(self, cue: Cue, row: int, among: Rows) -> list[dict[str, Any]]:
        """Return a sample as it is, with the cue of its donor of the same answer, and with that of another's.

        Args:
            cue: The cue.
            row: The sample.
            among: The samples that may give it; those of `effects`.
        """
        donors = [int(donors_for(self.answers, among, same, self._seed)[row]) for same in (True, False)]
        joint = collate([self.samples[i] for i in (row, *donors)], self._device)
        batch, *given = (rows_of(joint, slice(i, i + 1)) for i in range(3))
        return [batch, *(cue.exchange(batch, each) for each in given)]

    @torch.no_grad()
    def probabilities(self, batch: Batch) -> Float[np.ndarray, " classes"]:
        """Return the probabilities of the first sample of a batch."""
        return self._probabilities(batch)[0]

    def _effects(self, cue: Cue, rows: Rows, like: Rows, unlike: Rows) -> Float[np.ndarray, " n"]:
        missing = (like < 0) | (unlike < 0)
        groups = (rows, rows, np.where(missing, rows, like), np.where(missing, rows, unlike))
        size = len(rows)
        joint = collate([self.samples[row] for group in groups for row in group], self._device)
        # Both at once, so that texts are padded to the same length.
        both = cue.exchange(*(rows_of(joint, slice(i * 2 * size, (i + 1) * 2 * size)) for i in range(2)))
        changed = [rows_of(both, slice(i * size, (i + 1) * size)) for i in range(2)]
        missing = missing | ~differ(*changed)
        if missing.all():
            return np.full(size, np.nan)
        self.passes += 2 * size
        after = [self._probabilities(each)[np.arange(size), self.answers[rows]] for each in changed]
        return np.where(missing, np.nan, after[0] - after[1])


def differ(one: Batch, other: Batch) -> Bool[np.ndarray, " batch"]:
    """Return which samples of two batches differ in anything that the model is given."""
    given = [name for name in one if name in (*IMAGES, *TEXTS) or name not in CONTRACT]
    pairs = [(one[name], other[name]) for name in given if isinstance(one[name], Tensor)]
    different = [(a != b).reshape(len(a), -1).any(1) for a, b in pairs if a.ndim and len(a) == len(pairs[0][0])]
    return torch.stack(different).any(0).cpu().numpy()
