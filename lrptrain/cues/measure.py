"""The effect of a cue: how far answers move when samples take it from another sample."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample, collate
from lrptrain.batch.call import IMAGES, TEXTS, samples_of
from lrptrain.batch.matters import FEWEST_SAMPLES, LEVEL
from lrptrain.batch.reading import CONTRACT
from lrptrain.batch.sizes import by_size, fitted, size_of
from lrptrain.cues.cue import MOST, Batch, Cue
from lrptrain.cues.texts import as_wide_as
from lrptrain.extras import require

special = require("scipy.special", "monitor")

Indices = Int[np.ndarray, " n"]
Probabilities = Callable[[Batch], Float[np.ndarray, "batch classes"]]
FIRST_LOOK = 12
"""So many samples are measured first, then as many again, and so on, until the verdict is sure.

Of twelve that do not move at all the interval reaches to 2 points (`effect_of`), of eight to more than 5, which matter.
Half or twice as many change no first name, and cost 5 or 6 % more forward passes
(`python -m experiments.benchmark.moved`).
"""
FLIP = MOST
"""An effect on one sample that is larger decides its answer."""
FEWEST_FLIPPED = 4
"""So many more samples with the cue of another answer than with that of the same one: then "does not rely" is not said.

By chance as many have at most 2.5 % of models that hardly rely on a cue, and three have 7 % (logistic models, 128
samples, 400 runs each). Half or twice as many change no first name (`python -m experiments.benchmark.moved`)."""


class MeasureError(RuntimeError):
    """A cue cannot be exchanged, or the model cannot take what comes of it."""


class Effect(NamedTuple):
    """The effect of a cue on some samples.

    Attributes:
        mean: The mean over the samples of `p(answer | cue of a source with that answer) - p(answer | cue of a source
            with another)`, in [-1, 1]; nan without samples.
        low: The lower end of its interval.
        high: The upper end.
        samples: The number of samples in which the two differ.
    """

    mean: float
    low: float
    high: float
    samples: int


def effect_of(values: Float[np.ndarray, " n"], level: float, fewest: int = FEWEST_SAMPLES) -> Effect:
    """Return the mean of the values that are not nan, with Student's interval."""
    values = values[~np.isnan(values)]
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < fewest:
        return Effect(mean, -1.0, 1.0, count)
    # Of n effects that are all alike the spread is 0, and one of the next n could still be anything: a sample more at
    # either end of the range is added, as the "plus four" interval of proportions does (Agresti & Coull 1998).
    padded = np.concatenate([values, [mean - 1 / count, mean + 1 / count]])
    reach = float(special.stdtrit(count - 1, 1 - level) * padded.std(ddof=1) / math.sqrt(count))
    return Effect(mean, max(mean - reach, -1.0), min(mean + reach, 1.0), count)


def flipped(values: Float[np.ndarray, " n"], least: float = FLIP) -> int:
    """Return how many samples have at least such an effect, less those that have it the other way round, by chance."""
    return int((values > least).sum()) - int((values < -least).sum())


def most_flipped(values: Float[np.ndarray, " n"], level: float = LEVEL) -> float:
    """Return which share of all samples a cue may decide, in [0, 1] (Clopper & Pearson 1934)."""
    count, seen = int((~np.isnan(values)).sum()), int((values > FLIP).sum())
    return float(special.betaincinv(seen + 1, count - seen, 1 - level)) if seen < count else 1.0


def at_best(values: Float[np.ndarray, " n"], total: int, level: float, doubt: float) -> Effect:
    """Return what the effect is on all samples, if the further ones are as the upper end of what is known.

    Where even that is not enough, more samples hardly ever are (conditional power; Lan, Simon & Halperin 1982,
    "Stochastically curtailed tests in long-term clinical trials").

    Args:
        values: The effect on each sample so far; nan where there was nothing to measure.
        total: The number of all samples.
        level: The level of the interval on all samples.
        doubt: The probability that the mean lies beyond that upper end.
    """
    known = values[~np.isnan(values)]
    if len(values) == total:
        return effect_of(known, level)
    if len(known) + total - len(values) < FEWEST_SAMPLES:
        return Effect(0.0, -1.0, 1.0, 0)
    if len(known) < 2:  # no spread is known
        return Effect(1.0, 1.0, 1.0, 0)
    expected = max(round(len(known) * total / len(values)), FEWEST_SAMPLES)
    now = effect_of(known, doubt, fewest=2)
    mean = now.high + (now.mean - now.high) * min(len(known) / expected, 1.0)
    reach = float(special.stdtrit(expected - 1, 1 - level) * known.std(ddof=1) / math.sqrt(expected))
    return Effect(mean, mean - reach, min(mean + reach, 1.0), expected)


def sources_for(answers: Indices, among: Indices, same: bool, seed: int) -> Indices:
    """Return for each sample a random other one that has the same answer, or another one; -1 where there is none.

    Each gives about as often as any other: one odd sample would else be the source of many.
    """
    rng = np.random.default_rng([seed, same])
    sources = np.full(len(answers), -1)
    for answer in np.unique(answers[among]):
        takers = rng.permutation(among[answers[among] == answer])
        givers = takers if same else rng.permutation(among[answers[among] != answer])
        if same:
            # Around a random cycle, so that nobody is its own source.
            sources[takers] = np.roll(givers, 1) if len(givers) > 1 else -1
        elif len(givers):
            sources[takers] = np.resize(givers, len(takers))
    return sources


class Exchanged(NamedTuple):
    """Some samples that have taken a cue.

    Attributes:
        differ: Which differ by their source; the others have nothing to measure.
        batches: The samples with the cue of a source of another answer, and with that of one of the same.
        same_as: Which sample each of these is now, itself or its source; -1 for what the model has not answered yet.
    """

    chosen: Indices
    differ: Bool[np.ndarray, " n"]
    batches: tuple[Batch, Batch]
    same_as: tuple[Indices, Indices]


class Measure:
    """Measures the effects of cues on the same samples.

    Args:
        answers: What the model answers to each, as a class.
        probabilities: Returns the class probabilities of a batch, without gradients.
        device: Where the model is.
        batch_size: Samples of a forward pass.
        before: The class probabilities of the samples; None if the model has to be asked.
        mine: The samples that this process measures; None for all.
        gather: Returns the values of all processes.

    Attributes:
        passes: How many samples the model has been given so far, in this process.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        answers: Indices,
        probabilities: Probabilities,
        device: torch.device | str = "cpu",
        batch_size: int = 32,
        seed: int = 0,
        before: Float[np.ndarray, "n classes"] | None = None,
        mine: Indices | None = None,
        gather: Callable[[Any], list[Any]] = lambda value: [value],
    ) -> None:
        self.samples = samples
        self.answers = answers
        self.passes = 0
        self._probabilities = probabilities
        self._device = device
        self._batch_size = batch_size
        self._seed = seed
        unknown = np.full((len(samples), int(answers.max(initial=0)) + 1), np.nan)
        self._before = unknown if before is None else before
        self._mine = mine
        self._gather = gather
        self._known: dict[tuple[Cue, bytes, bool], dict[int, float]] = {}
        self._exchanged: tuple[tuple[Cue, bytes, bytes] | None, list[Exchanged]] = (None, [])

    def effects(self, cue: Cue, chosen: Indices, among: Indices) -> Float[np.ndarray, " n"]:
        """Return the effect of a cue on each of some samples; nan where both sources' cues are the same.

        Every process has to call it, with the same cue and samples. Nothing is measured twice.
        """
        return self.drops(cue, chosen, among) - self._drops(cue, chosen, among, same=True)

    def drops(self, cue: Cue, chosen: Indices, among: Indices) -> Float[np.ndarray, " n"]:
        """Return by how much each answer's probability drops with the cue of another answer; see `effects`.

        It costs half as much, and bounds the effect: with the cue of another sample of their answer, answers are hardly
        surer in the mean than they were (of 24 models, by 2 points at most; of 6, within noise, for whole images).
        """
        return self._drops(cue, chosen, among, same=False)

    def _drops(self, cue: Cue, chosen: Indices, among: Indices, same: bool) -> Float[np.ndarray, " n"]:
        known = self._known.setdefault((cue, among.tobytes(), same), {})
        missing = np.array([i for i in chosen.tolist() if i not in known], int)
        if len(missing):
            mine = missing if self._mine is None else missing[np.isin(missing, self._mine)]
            for where, found in by_all(mine, lambda chosen: self._measured(cue, chosen, among, same), self._gather):
                known.update(zip(where.tolist(), found.tolist(), strict=True))
        return np.array([known[i] for i in chosen.tolist()])

    @torch.no_grad()
    def example(self, cue: Cue, i: int, among: Indices) -> list[dict[str, Any]]:
        """Return a sample as it is, with the cue of its source of the same answer, and with that of another's."""
        sources = [int(sources_for(self.answers, among, same, self._seed)[i]) for same in (True, False)]
        own, given = together(self.samples, np.array([i, i]), np.array(sources), self._device)
        parts = [[samples_of(batch, slice(i, i + 1)) for i in range(2)] for batch in (own, given)]
        return [parts[0][0], *(cue.exchange(*pair) for pair in zip(*parts, strict=True))]

    @torch.no_grad()
    def probabilities(self, batch: Batch) -> Float[np.ndarray, " classes"]:
        """Return the probabilities of the first sample of a batch."""
        return self._probabilities(batch)[0]

    @torch.no_grad()
    def _measured(self, cue: Cue, chosen: Indices, among: Indices, same: bool) -> Float[np.ndarray, " n"]:
        # Both sources' cues are exchanged together: the control is what is asked for next.
        what = (cue, among.tobytes(), chosen.tobytes())
        if self._exchanged[0] != what:
            sources = [sources_for(self.answers, among, kind, self._seed) for kind in (False, True)]
            split = [chosen[indices] for indices in by_size([self.samples[i] for i in chosen], self._batch_size)]
            self._exchanged = what, [self._exchange(cue, part, *(each[part] for each in sources)) for part in split]
        values = np.full(len(self.samples), np.nan)
        for each in self._exchanged[1]:
            values[each.chosen] = self._drops_of(each, same)
        return values[chosen]

    def _drops_of(self, exchanged: Exchanged, same: bool) -> Float[np.ndarray, " n"]:
        chosen, differ = exchanged.chosen, exchanged.differ
        drops = np.full(len(chosen), np.nan)
        same_as = exchanged.same_as[same]
        answered, new = (np.flatnonzero(differ & is_it) for is_it in (same_as >= 0, same_as < 0))
        if len(answered):
            drops[answered] = self._answered(same_as[answered], chosen[answered])
        if len(new):
            batch = samples_of(exchanged.batches[same], torch.from_numpy(new))
            drops[new] = self._asked(batch, len(new))[np.arange(len(new)), self.answers[chosen[new]]]
        drops[differ] = self._answered(chosen[differ], chosen[differ]) - drops[differ]
        return drops

    def _exchange(self, cue: Cue, chosen: Indices, unlike: Indices, like: Indices) -> Exchanged:
        missing = (like < 0) | (unlike < 0)
        sources = [np.where(missing, chosen, each) for each in (unlike, like)]
        size = len(chosen)
        takers, givers = np.tile(chosen, 2), np.concatenate(sources)
        own, given = together(self.samples, takers, givers, self._device)
        both = cue.exchange(own, given)
        same_as = np.full(2 * size, -1)
        # What a source is at another size, the model has not been asked.
        sizes = [[size_of(self.samples[i]) for i in group] for group in (takers, givers)]
        asked = np.array([one == other for one, other in zip(*sizes, strict=True)], bool)
        for sample, who in ((given, np.where(asked, givers, -1)), (own, takers)):
            same_as = np.where(differ(both, as_wide_as(both, sample)), same_as, who)
        batches = samples_of(both, slice(size)), samples_of(both, slice(size, 2 * size))
        return Exchanged(chosen, differ(*batches) & ~missing, batches, (same_as[:size], same_as[size:]))

    def _answered(self, who: Indices, chosen: Indices) -> Float[np.ndarray, " n"]:
        """Return the probability that some samples, as they are, give to the answers of others."""
        unknown = np.unique(who[np.isnan(self._before[who]).any(1)])
        for indices in by_size([self.samples[i] for i in unknown], self._batch_size):
            part = unknown[indices]
            batch = collate([self.samples[i] for i in part], self._device)
            self._before[part] = self._asked(batch, len(part))[:, : self._before.shape[1]]
        return self._before[who, self.answers[chosen]]

    def _asked(self, batch: Batch, size: int) -> Float[np.ndarray, "batch classes"]:
        self.passes += size
        return self._probabilities(batch)


def by_all(
    mine: Indices,
    measure: Callable[[Indices], np.ndarray],
    gather: Callable[[Any], list[Any]],
) -> list[tuple[Indices, np.ndarray]]:
    """Return what every process measures on its own samples, and which these are; all of them call it."""
    problem, cause, measured = "", None, np.empty(0)
    try:
        measured = measure(mine)
    except Exception as error:
        problem, cause = f"{type(error).__name__}: {error}", error
    # Also after a failure: the other processes wait for this one.
    parts = gather((mine, measured, problem))
    if first := next((each for *_, each in parts if each), ""):
        raise MeasureError(first) from cause
    return [(where, found) for where, found, _ in parts if len(where)]


def together(
    samples: Sequence[Sample], takers: Indices, sources: Indices, device: torch.device | str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return samples of one size, and their sources brought to it, as two batches that are padded alike."""
    given = [fitted(samples[source], samples[taker]) for source, taker in zip(sources, takers, strict=True)]
    joint = collate([*(samples[i] for i in takers), *given], device)
    return samples_of(joint, slice(len(takers))), samples_of(joint, slice(len(takers), 2 * len(takers)))


def differ(one: Batch, other: Batch) -> Bool[np.ndarray, " batch"]:
    """Return which samples of two batches differ in anything that the model is given."""
    given = [name for name in one if name in (*IMAGES, *TEXTS) or name not in CONTRACT]
    pairs = [(one[name], other[name]) for name in given if isinstance(one[name], Tensor)]
    different = [(a != b).reshape(len(a), -1).any(1) for a, b in pairs if a.ndim and len(a) == len(pairs[0][0])]
    return torch.stack(different).any(0).cpu().numpy()
