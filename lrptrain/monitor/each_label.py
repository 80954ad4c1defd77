"""What a model of several labels reads for each of them: all labels are told by the same exchanged samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample, collate
from lrptrain.batch.call import model_output, rows_of
from lrptrain.batch.sizes import by_size
from lrptrain.batch.task import LABELS, EachLabel
from lrptrain.cues import plan
from lrptrain.cues.cue import Batch, Cue
from lrptrain.cues.measure import FEWEST_SAMPLES, Measure, MeasureError, Rows, differ, together
from lrptrain.cues.search import Judged, Search
from lrptrain.cues.texts import Language
from lrptrain.findings import Finding
from lrptrain.findings.sentences import listed
from lrptrain.monitor.confidence import sharpened, sharpness
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.judging import roots_of
from lrptrain.monitor.reporting import findings_of
from lrptrain.relevance import Recording, Relevance
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.output.outputs import read_logits

PER_LABEL = 1
"""So many phrases each half of the samples proposes for a label, where all labels together would propose many."""
POOL = 24
"""Among so many random samples the two donors are chosen; it changes how many labels a pair serves, and no effect."""


@dataclass(frozen=True)
class JointEvaluator(Evaluator):
    """Explains all answers of a sample in one map: the sum of the logits, each with the sign of its answer."""

    def _explain(
        self, recording: Recording, inputs: Tensor | dict[str, Any], samples: Sequence[Sample]
    ) -> dict[str, Relevance]:
        logits = recording.logits.detach()
        signs = torch.where(logits > 0, 1.0, -1.0).to(logits)

        def all_answers(output: Any) -> Float[Tensor, " batch"]:
            return (read_logits(output, len(logits)) * signs).sum(1)

        found = recording.attribute(all_answers, self.config.method, **self.config.options)
        return {"predicted": Relevance(found.scores, logits, logits.argmax(1), found.method, found.grid)}


class JointMeasure:
    """Exchanges cues between samples, and notes what the model then says of every label.

    Args:
        samples: The samples.
        yes: What the model answers to each label of each.
        probabilities: Returns the probability of each label, without gradients.
        device: Where the model is.
        batch_size: Samples of a forward pass.
        seed: The seed of the donors.

    Attributes:
        passes: How many samples the model has been given so far.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        yes: Bool[np.ndarray, "n labels"],
        probabilities: Callable[[Batch], Float[np.ndarray, "batch labels"]],
        device: torch.device | str,
        batch_size: int,
        seed: int,
    ) -> None:
        self.samples = samples
        self.yes = yes
        self.probabilities = probabilities
        self.passes = 0
        self._device = device
        self._batch_size = batch_size
        self._seed = seed
        self._donors: dict[bytes, Int[np.ndarray, "n 2"]] = {}
        self._given: dict[tuple[Cue, bytes], Float[np.ndarray, "n 2 labels"]] = {}
        self._known: dict[tuple[Cue, bytes], Bool[np.ndarray, " n"]] = {}

    def donors(self, among: Rows) -> Int[np.ndarray, "n 2"]:
        """Return two other samples for each, whose answers differ in many labels, rare ones first.

        A label is told by a pair of which one has the sample's answer to it and the other has not.
        """
        key = among.tobytes()
        if key not in self._donors:
            rng = np.random.default_rng([self._seed, len(among)])
            served = np.ones(self.yes.shape[1])
            donors = np.tile(np.arange(len(self.samples))[:, None], 2)
            for row in rng.permutation(among):
                pool = rng.permutation(among[among != row])[:POOL]
                differs = self.yes[pool][:, None] != self.yes[pool][None]
                one, other = np.unravel_index((differs / served).sum(2).argmax(), differs.shape[:2])
                donors[row] = pool[one], pool[other]
                served += differs[one, other]
            self._donors[key] = donors
        return self._donors[key]

    @torch.no_grad()
    def given(self, cue: Cue, rows: Rows, among: Rows) -> Float[np.ndarray, "rows 2 labels"]:
        """Return the probability of every label with the cue of either donor; nan where it is the same in both.

        Raises:
            MeasureError: If the cue cannot be exchanged.
        """
        key = cue, among.tobytes()
        size = (len(self.samples), 2, self.yes.shape[1])
        values = self._given.setdefault(key, np.full(size, np.nan))
        known = self._known.setdefault(key, np.zeros(len(self.samples), bool))
        donors = self.donors(among)
        missing = rows[~known[rows]]
        for group in by_size([self.samples[row] for row in missing], self._batch_size):
            part = missing[group]
            try:
                values[part] = self._exchanged(cue, part, donors[part])
            except Exception as error:
                raise MeasureError(f"{type(error).__name__}: {error}") from error
            known[part] = True
        return values[rows]

    def _exchanged(self, cue: Cue, rows: Rows, donors: Int[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows 2 labels"]:
        size = len(rows)
        both = cue.exchange(*together(self.samples, np.tile(rows, 2), donors.T.flatten(), self._device))
        changed = [rows_of(both, slice(i * size, (i + 1) * size)) for i in range(2)]
        different = differ(*changed)
        if not different.any():
            return np.full((size, 2, self.yes.shape[1]), np.nan)
        self.passes += 2 * size
        after = np.stack([self.probabilities(each) for each in changed], 1)
        return np.where(different[:, None, None], after, np.nan)


class LabelMeasure(Measure):
    """The effects of cues on the answers to one label; see `JointMeasure`.

    Args:
        joint: What measures all labels.
        label: The number of the label.
        power: What sharpens its probabilities.
    """

    def __init__(self, joint: JointMeasure, label: int, power: float) -> None:
        answers = joint.yes[:, label].astype(int)

        def probabilities(batch: Batch) -> Float[np.ndarray, "batch 2"]:
            return self._of_both(joint.probabilities(batch)[:, label])

        super().__init__(joint.samples, answers, probabilities)
        self._joint = joint
        self._label = label
        self._power = power

    def _of_both(self, yes: Float[np.ndarray, " batch"]) -> Float[np.ndarray, "batch 2"]:
        return sharpened(np.stack([1 - yes, yes], 1), self._power)

    def effects(self, cue: Cue, rows: Rows, among: Rows) -> Float[np.ndarray, " n"]:
        """See `Measure`; nan also where both donors have the same answer, of which the model is asked nothing."""
        effect = np.full(len(rows), np.nan)
        same = self.answers[self._joint.donors(among)[rows]] == self.answers[rows][:, None]
        told = np.flatnonzero(same[:, 0] != same[:, 1])
        if not len(told):
            return effect
        given = self._joint.given(cue, rows[told], among)[:, :, self._label]
        own = self.answers[rows[told]]
        one, other = (self._of_both(given[:, i])[np.arange(len(told)), own] for i in range(2))
        effect[told] = np.where(same[told, 0], one - other, other - one)
        return effect

    def drops(self, cue: Cue, rows: Rows, among: Rows) -> Float[np.ndarray, " n"]:
        """Return the effects themselves: the model has answered with either donor's cue at once."""
        return self.effects(cue, rows, among)


class OfLabels(NamedTuple):
    """What is found for all labels.

    Attributes:
        findings: The findings, each with the label in its name.
        judged: What was tested, label by label.
        untested: What was not, and why.
        accuracy: The share of the known labels that is answered rightly, in [0, 1]; nan without any.
        passes: The forward passes of all samples together.
    """

    findings: list[Finding]
    judged: list[Judged]
    untested: list[str]
    accuracy: float
    passes: int


def judge_labels(
    evaluator: Evaluator,
    evaluation: Evaluation,
    task: EachLabel,
    config: MonitorConfig,
    language: Language,
    name_tokens: Callable[[list[int]], list[str]],
) -> OfLabels:
    """Test what may decide the answers to each label.

    Args:
        evaluator: The model, in evaluation mode.
        evaluation: The samples, with their inputs.
        task: Which labels there are.
        config: What is tested, and how strictly. Its level is that of all labels together.
        language: How texts are made up.
        name_tokens: Brings token ids to token strings.
    """
    samples = evaluation.inputs
    assert samples is not None
    model = unwrap(evaluator.model)

    def probabilities(batch: Mapping[str, Any]) -> Float[np.ndarray, "batch labels"]:
        with evaluator.forward_context():
            found: Float[np.ndarray, "batch labels"] = model_output(model, batch).double().sigmoid().cpu().numpy()
        return found

    groups = by_size(samples, config.run.batch_size)
    with torch.no_grad():
        parts = [probabilities(collate([samples[i] for i in group], evaluator.device)) for group in groups]
    answered = np.concatenate(parts)[np.argsort(np.concatenate(groups))]
    yes = answered > 0.5
    labels = _labels(samples, yes.shape[1])
    joint = JointMeasure(samples, yes, probabilities, evaluator.device, config.run.batch_size, config.judge.seed)
    titles = task.names(yes.shape[1])
    findings: list[Finding] = []
    judged: list[Judged] = []
    untested: list[str] = []
    places: dict[Cue, Bool[np.ndarray, " places"] | None] = {}

    def note(cue: Cue, error: MeasureError) -> None:
        if (line := f"{cue.name}: {error}") not in untested:
            untested.append(line)

    alike = [number for number in range(len(titles)) if min(yes[:, number].sum(), (~yes[:, number]).sum()) < 2]
    confidence = 1 - (1 - config.judge.confidence) / max(len(titles) - len(alike), 1)
    for number, title in enumerate(titles):
        if number in alike or len(samples) < FEWEST_SAMPLES or config.cues is None:
            continue
        both = np.stack([1 - answered[:, number], answered[:, number]], 1)
        of_label = _of_label(evaluation, both, labels[:, number])
        roots, unsaid = roots_of(of_label, samples, of_label.answers, language, config, 0, PER_LABEL)
        roots = plan.with_further(roots, [(cue, None) for cue in config.cues], len(samples))
        untested += [line for line in unsaid if line not in untested]
        measure = LabelMeasure(joint, number, sharpness(both, labels[:, number]))
        search = Search(measure, config.judge.min_effect, confidence, config.cues, note, places)
        found = search.run(roots)
        names = [f"no {title}", title]
        findings += [
            replace(each, name=f"{each.name}, for the label {title!r}")
            for each in findings_of(found, of_label, names, name_tokens, has_maps=False)
        ]
        judged += found
    if alike:
        untested.append(
            f"the labels {listed([titles[each] for each in alike])}: the model answers nearly all samples alike"
        )
    if evaluation.medium == "image":
        untested.append("marks, which one label proposes: task=lrptrain.OneLabel(column)")
    known = labels >= 0
    right = float((yes == labels)[known].mean()) if known.any() else float("nan")
    return OfLabels(findings, judged, untested, right, joint.passes)


def _labels(samples: Sequence[Sample], count: int) -> Int[np.ndarray, "n labels"]:
    """Return every label of the samples, -1 where it is not known."""
    rows = [sample.tensors.get(LABELS) for sample in samples]
    return np.stack([np.full(count, -1) if row is None else row.numpy().astype(int) for row in rows])


def _of_label(
    evaluation: Evaluation, probabilities: Float[np.ndarray, "n 2"], labels: Int[np.ndarray, " n"]
) -> Evaluation:
    """Return the samples as a model of one label alone would answer them."""
    samples = [
        replace(
            each,
            sample=replace(each.sample, label=int(label)),
            predicted=int(row.argmax()),
            probabilities=row,
            num_logits=2,
        )
        for each, row, label in zip(evaluation.samples, probabilities, labels, strict=True)
    ]
    return replace(evaluation, samples=samples)
