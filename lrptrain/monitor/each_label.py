"""What a model of several labels relies on for each of them: all labels are tested by the same swapped samples."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from lrptrain.batch import Sample
from lrptrain.batch.call import samples_of
from lrptrain.batch.sizes import by_size
from lrptrain.batch.task import MASKS
from lrptrain.cues.cue import Batch, Cue
from lrptrain.cues.measure import Indices, Measure, by_all, differ, together
from lrptrain.cues.search import Judged
from lrptrain.findings.sentences import listed
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.judgement import Judgement, Tests
from lrptrain.monitor.skill import sharpened, sharpness
from lrptrain.trainers.processes import gather

POOL = 24
"""Among so many random samples the two sources are chosen; a choice, of speed: it changes how many labels a pair
serves, and no effect."""


class JointMeasure:
    """Swaps cues between samples, and notes what the model then answers to every label."""

    def __init__(self, tests: Tests) -> None:
        self.tests = tests
        self.yes: Bool[np.ndarray, "n labels"] = tests.evaluation.probabilities > 0.5
        self.passes = 0
        self._has_masks = any(MASKS in sample.tensors for sample in tests.samples)
        self._sources: dict[bytes, Int[np.ndarray, "n 2"]] = {}
        self._given: dict[tuple[Cue, bytes, int], Float[np.ndarray, "n 2 labels"]] = {}
        self._known: dict[tuple[Cue, bytes, int], Bool[np.ndarray, " n"]] = {}

    def sources(self, among: Indices) -> Int[np.ndarray, "n 2"]:
        """Return two other samples for each, whose answers differ in many labels, rare ones first.

        A label is tested by a pair of which one has the sample's answer to it and the other has not.
        """
        key = among.tobytes()
        if key not in self._sources:
            rng = np.random.default_rng([self.tests.config.judge.seed, len(among)])
            served = np.ones(self.yes.shape[1])
            sources = np.tile(np.arange(len(self.yes))[:, None], 2)
            for i in rng.permutation(among):
                pool = rng.permutation(among[among != i])[:POOL]
                differs = self.yes[pool][:, None] != self.yes[pool][None]
                one, other = np.unravel_index((differs / served).sum(2).argmax(), differs.shape[:2])
                sources[i] = pool[one], pool[other]
                served += differs[one, other]
            self._sources[key] = sources
        return self._sources[key]

    @torch.no_grad()
    def given(
        self, cue: Cue, chosen: Indices, among: Indices, of: "LabelMeasure"
    ) -> Float[np.ndarray, "chosen 2 labels"]:
        """Return the probability of every label with the cue of either source; nan where it is the same in both.

        Every process has to call it, with the same cue and samples. What lies outside of the masks of a label is a cue
        of that label alone, where each has its own.
        """
        key = cue, among.tobytes(), of.label if self._has_masks and cue.needs_annotation else -1
        size = (len(self.yes), 2, self.yes.shape[1])
        values = self._given.setdefault(key, np.full(size, np.nan))
        known = self._known.setdefault(key, np.zeros(len(self.yes), bool))
        missing = chosen[~known[chosen]]
        if len(missing):
            mine = missing[np.isin(missing, self.tests.mine)]
            measured = partial(self._measured, of.samples, cue, self.sources(among))
            for where, found in by_all(mine, measured, gather):
                values[where] = found
            known[missing] = True
        return values[chosen]

    def _measured(
        self, samples: Sequence[Sample], cue: Cue, sources: Int[np.ndarray, "n 2"], chosen: Indices
    ) -> Float[np.ndarray, "chosen 2 labels"]:
        values = np.full((len(chosen), 2, self.yes.shape[1]), np.nan)
        for group in by_size([samples[i] for i in chosen], self.tests.config.run.batch_size):
            values[group] = self._exchanged(samples, cue, chosen[group], sources[chosen[group]])
        return values

    def _exchanged(
        self, samples: Sequence[Sample], cue: Cue, chosen: Indices, sources: Int[np.ndarray, "chosen 2"]
    ) -> Float[np.ndarray, "chosen 2 labels"]:
        size = len(chosen)
        both = cue.exchange(*together(samples, np.tile(chosen, 2), sources.T.flatten(), self.tests.evaluator.device))
        changed = [samples_of(both, slice(i * size, (i + 1) * size)) for i in range(2)]
        different = differ(*changed)
        if not different.any():
            return np.full((size, 2, self.yes.shape[1]), np.nan)
        self.passes += 2 * size
        after = np.stack([self.tests.probabilities(each) for each in changed], 1)
        return np.where(different[:, None, None], after, np.nan)


class LabelMeasure(Measure):
    """The effects of cues on the answers to one label; see `JointMeasure`."""

    def __init__(self, joint: JointMeasure, evaluation: Evaluation, label: int, power: float) -> None:
        def probabilities(batch: Batch) -> Float[np.ndarray, "batch 2"]:
            return self._of_both(joint.tests.probabilities(batch)[:, label])

        tests = joint.tests
        super().__init__(evaluation.inputs or (), evaluation.answers, probabilities, tests.evaluator.device)
        self._joint = joint
        self.label = label
        self._power = power

    def _of_both(self, yes: Float[np.ndarray, " batch"]) -> Float[np.ndarray, "batch 2"]:
        return sharpened(np.stack([1 - yes, yes], 1), self._power)

    def effects(self, cue: Cue, chosen: Indices, among: Indices) -> Float[np.ndarray, " n"]:
        """See `Measure`; nan also where both sources have the same answer, of which the model is asked nothing."""
        effect = np.full(len(chosen), np.nan)
        same = self.answers[self._joint.sources(among)[chosen]] == self.answers[chosen][:, None]
        told = np.flatnonzero(same[:, 0] != same[:, 1])
        if not len(told):
            return effect
        given = self._joint.given(cue, chosen[told], among, self)[:, :, self.label]
        own = self.answers[chosen[told]]
        one, other = (self._of_both(given[:, i])[np.arange(len(told)), own] for i in range(2))
        effect[told] = np.where(same[told, 0], one - other, other - one)
        return effect

    def drops(self, cue: Cue, chosen: Indices, among: Indices) -> Float[np.ndarray, " n"]:
        """Return the effects themselves: the model has answered with either source's cue at once."""
        return self.effects(cue, chosen, among)


def judge_labels(tests: Tests) -> Judgement:
    """Test what may decide the answers to each label."""
    if tests.hindrance:
        return Judgement(untested=[tests.hindrance])
    evaluation, config = tests.evaluation, tests.config
    joint = JointMeasure(tests)
    judged: list[Judged] = []
    measures: dict[int | None, Measure] = {}
    yes = joint.yes
    told = [number for number in range(yes.shape[1]) if min(yes[:, number].sum(), (~yes[:, number]).sum()) > 1]
    confidence = 1 - (1 - config.judge.confidence) / max(len(told), 1)
    for number in told:
        of_label = evaluation.of(number)
        power = sharpness(of_label.probabilities, of_label.labels)
        measures[number] = LabelMeasure(joint, of_label, number, power)
        # One mark or phrase of each half of the samples: all labels together propose many.
        judged += tests.searched(measures[number], of_label, confidence, number, candidates=1)
    untested = [*tests.untested]
    if alike := sorted({*range(yes.shape[1])} - {*told}):
        titles = tests.class_names or [f"label {number}" for number in range(yes.shape[1])]
        untested.append(f"{listed([titles[each] for each in alike])}: the model answers nearly all samples alike")
    # What is listed first, the strongest of any label.
    return Judgement(
        sorted(judged, key=lambda x: (not x.named, -x.effect.low)), untested, measures, joint.passes, tests.failed
    )
