"""The tests of an evaluation: what of its samples is tested, by a measure, and what that has shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.call import model_output
from lrptrain.batch.logits import are_beyond, features
from lrptrain.batch.matters import FEWEST_SAMPLES
from lrptrain.batch.sizes import cannot_meet, size_of
from lrptrain.batch.task import MASKS
from lrptrain.cues import plan
from lrptrain.cues.cue import Cue
from lrptrain.cues.mark import Marks
from lrptrain.cues.measure import Indices, Measure, MeasureError
from lrptrain.cues.search import Judged, Node, Search
from lrptrain.cues.texts import Language
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.skill import sharpened
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.trainers.processes import gather

NAMELESS = "families of words, for nothing names the tokens: pass tokenizer="
"""What is not tested of texts without a tokenizer."""


class Judgement(NamedTuple):
    """What the tests of an evaluation have shown.

    Attributes:
        judged: Every cue that was tested; what is named comes first, by the lower end of its effect.
        measures: What measured the effects, by the number of the label; the only one by None.
        passes: How many samples the model was given, in this process.
    """

    judged: Sequence[Judged] = ()
    untested: Sequence[str] = ()
    measures: Mapping[int | None, Measure] = {}
    passes: int = 0
    failed: Sequence[str] = ()


@dataclass
class Tests:
    """The tests of one evaluation, of which every process makes the same, each on its own samples.

    Attributes:
        mine: The indices of the samples that this process measures.
        earlier: By label, None for the only one, what was named of the same samples before, and which of them judge it.
            It is tested again.
        on_failure: Takes what could not be measured; None passes the error on.
    """

    __test__ = False
    evaluator: Evaluator
    evaluation: Evaluation
    mine: Sequence[int]
    config: MonitorConfig
    language: Language
    earlier: Mapping[int | None, Sequence[tuple[Cue, Indices]]] = field(default_factory=dict)
    on_failure: Callable[[str], None] | None = None
    class_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.untested: list[str] = []
        self.failed: list[str] = []
        self._sizes: dict[Cue, float] = {}
        self._marks: Marks | None = None

    @property
    def samples(self) -> Sequence[Sample]:
        """The samples, with their inputs."""
        assert self.evaluation.inputs is not None
        return self.evaluation.inputs

    @property
    def hindrance(self) -> str:
        """Why nothing can be tested; "" if something can."""
        if self.config.cues is None:
            return "anything: cues=None"
        if len(self.samples) < FEWEST_SAMPLES:
            return f"anything: {len(self.samples)} samples are too few, {FEWEST_SAMPLES} can be enough"
        return ""

    def probabilities(self, batch: Mapping[str, Any]) -> Float[np.ndarray, "batch classes"]:
        """Return what the model answers to a batch, with the trainer's autocast."""
        with self.evaluator.forward_context():
            logits = model_output(unwrap(self.evaluator.model), batch)
            return self.config.meaning.probabilities(logits).cpu().numpy()

    def judge(self, power: float) -> Judgement:
        """Test what may decide the answers of a model."""
        if self.hindrance:
            return Judgement(untested=[self.hindrance])
        evaluation = self.evaluation
        if len(np.unique(evaluation.answers)) < 2:
            return Judgement(
                untested=["anything: the model gives one answer to all samples, so nothing can be swapped"]
            )
        answers, labels = torch.tensor(evaluation.answers), torch.tensor([each.label for each in self.samples])
        if are_beyond(answers, labels):
            outputs = evaluation.probabilities.shape[1]
            return Judgement(untested=[f"anything: {features(outputs, int(labels.max()))}"])
        measure = Measure(
            self.samples,
            evaluation.answers,
            lambda batch: sharpened(self.probabilities(batch), power),
            self.evaluator.device,
            self.config.run.batch_size,
            self.config.judge.seed,
            before=sharpened(evaluation.probabilities, power),
            mine=np.array(self.mine, int),
            gather=gather,
        )
        judged = self.searched(measure, evaluation, self.config.judge.confidence)
        return Judgement(judged, self.untested, {None: measure}, measure.passes, self.failed)

    def searched(
        self,
        measure: Measure,
        evaluation: Evaluation,
        confidence: float,
        label: int | None = None,
        candidates: int = plan.CANDIDATES,
    ) -> list[Judged]:
        """Return what is found by one measure; what is not tested is noted."""
        config = self.config
        assert config.cues is not None
        roots, untested = self.roots_of(evaluation, candidates)
        marked = sum(each.annotated is not None for each in evaluation.samples)
        if 0 < marked < FEWEST_SAMPLES:
            untested.append(
                f"what lies outside of annotations: {marked} samples have one, {FEWEST_SAMPLES} can be enough"
            )
        self._note(untested)
        further = [*((cue, None) for cue in config.cues), *self.earlier.get(label, ())]
        roots = plan.with_further(roots, further, len(self.samples))
        on_failure = None if self.on_failure is None else self._failed
        search = Search(measure, config.judge.min_effect, confidence, config.cues, on_failure, self._sizes)
        return [replace(each, label=label) for each in search.run(roots)]

    def roots_of(self, evaluation: Evaluation, candidates: int = plan.CANDIDATES) -> tuple[list[Node], list[str]]:
        """Return what is tested, and what is not, with the reason; `candidates` are those of each half."""
        samples, language, config = evaluation.inputs or (), self.language, self.config
        roots, seed, answers = plan.of_inputs(samples), config.judge.seed, evaluation.answers
        if evaluation.medium == "text":
            unnamed = "" if language.is_named else NAMELESS
            texts = plan.of_texts(samples, answers, language, seed, candidates)
            return [*texts, *roots], [unnamed] if unnamed else []
        maps = [each.map_of_answer for each in evaluation.samples]
        if evaluation.medium == "rows":
            if name := cannot_meet(samples):
                return roots, [f"rows, of which {name!r} has another size in each sample, and not along the rows alone"]
            return [*plan.of_rows(samples, maps, answers, seed, candidates), *roots], []
        if evaluation.medium == "volume":
            return [*plan.of_volumes(samples, answers), *roots], plan.untold(samples, answers)
        alike = len({size_of(sample) for sample in samples}) == 1
        if evaluation.medium == "series":
            parts = plan.of_series(samples, answers) if alike else []
            left = plan.untold(samples, answers) if alike else ["parts of series, which need to be equally long"]
            return [*parts, *roots], left
        grids = [each.grid for each in evaluation.samples if each.grid is not None]
        axes = {x.ndim for sample in samples for name, x in sample.tensors.items() if name in IMAGES}
        if len(grids) < len(samples) or axes != {3}:
            return roots, ["parts of an input that is no image, no text and no rows: lrptrain.attribute explains it"]
        if alike and (self._marks is None or MASKS in self.samples[0].tensors):
            # Of several labels the same pictures are proposed to each: they are looked for once.
            self._marks = Marks(samples, maps, (grids[0][0], grids[0][1]), self.evaluation.said)
        images = plan.of_images(samples, self._marks, answers, seed, config.show.region_names, candidates)
        unlike = [] if alike else ["marks, which need images of one size"]
        return [*images, *roots], [*plan.untold(samples, answers), *unlike]

    def _failed(self, cue: Cue, error: MeasureError) -> None:
        self.failed.append(cue.name)
        if self._note([f"{cue.name}: {error}"]) and self.on_failure is not None:
            self.on_failure(f"{cue.name} could not be swapped: {error}")

    def _note(self, lines: Sequence[str]) -> bool:
        """Note what is not tested, each line once; return whether any is new."""
        new = [line for line in lines if line not in self.untested]
        self.untested += new
        return bool(new)
