"""The test of cues on the samples of an evaluation, by all processes together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.call import model_output
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.sizes import cannot_meet, size_of
from lrptrain.cues import plan
from lrptrain.cues.cue import Cue
from lrptrain.cues.measure import FEWEST_SAMPLES, Measure, MeasureError, Rows
from lrptrain.cues.search import Judged, Node, Search
from lrptrain.cues.texts import Language
from lrptrain.monitor.confidence import sharpened
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.trainers.processes import gather


class Judgement(NamedTuple):
    """What the tests of an evaluation have shown.

    Attributes:
        judged: Every cue that was tested; what is named comes first, by the lower end of its effect.
        untested: What was not tested, and why, a line each.
        measure: What measured the effects, to show examples; None where nothing could be tested.
    """

    judged: Sequence[Judged] = ()
    untested: Sequence[str] = ()
    measure: Measure | None = None


def judge_cues(
    evaluator: Evaluator,
    evaluation: Evaluation,
    mine: Sequence[int],
    config: MonitorConfig,
    language: Language,
    power: float,
    earlier: Sequence[tuple[Cue, Rows]],
    on_failure: Callable[[str], None] | None,
) -> Judgement:
    """Test what may decide the answers of a model.

    Every process takes part, with the same samples.

    Args:
        evaluator: The model, in evaluation mode.
        evaluation: The samples, with their inputs.
        mine: The indices of the samples that this process measures.
        config: What is tested, and how strictly.
        language: How texts are made up.
        power: What sharpens the probabilities; see `lrptrain.monitor.confidence`.
        earlier: What was named of the same samples before, and those that judge it: it is tested again.
        on_failure: Takes what could not be measured; None passes the error on.
    """
    samples = evaluation.inputs
    assert samples is not None
    if config.cues is None:
        return Judgement(untested=["anything: cues=None"])
    if len(samples) < FEWEST_SAMPLES:
        return Judgement(untested=[f"anything: {len(samples)} samples are too few, {FEWEST_SAMPLES} can be enough"])
    answers = evaluation.answers
    if len(np.unique(answers)) < 2:
        return Judgement(untested=["anything: the model gives one answer to all samples, so nothing can be exchanged"])
    model = unwrap(evaluator.model)

    def probabilities(batch: Mapping[str, Any]) -> Float[np.ndarray, "batch classes"]:
        with evaluator.forward_context():
            return sharpened(class_probabilities(model_output(model, batch)).cpu().numpy(), power)

    measure = Measure(
        samples,
        answers,
        probabilities,
        evaluator.device,
        config.batch_size,
        config.seed,
        before=sharpened(evaluation.probabilities, power),
        mine=np.array(mine, int),
        gather=gather,
    )
    roots, untested = roots_of(evaluation, samples, answers, language, config)
    marked = sum(each.annotated is not None for each in evaluation.samples)
    if 0 < marked < FEWEST_SAMPLES:
        untested.append(f"what lies outside of annotations: {marked} samples have one, {FEWEST_SAMPLES} can be enough")
    roots = plan.with_further(roots, [*((cue, None) for cue in config.cues), *earlier], len(samples))

    def note(cue: Cue, error: MeasureError) -> None:
        untested.append(f"{cue.name}: {error}")
        if on_failure is not None:
            on_failure(f"{cue.name} could not be exchanged: {error}")

    search = Search(measure, config.min_effect, config.confidence, config.cues, None if on_failure is None else note)
    return Judgement(search.run(roots), untested, measure)


def roots_of(
    evaluation: Evaluation,
    samples: Sequence[Sample],
    answers: Int[np.ndarray, " n"],
    language: Language,
    config: MonitorConfig,
    marks: int = plan.CANDIDATES,
    phrases: int = plan.CANDIDATES,
) -> tuple[list[Node], list[str]]:
    """Return what is tested of some samples, and what is not, with the reason.

    Args:
        evaluation: The samples, explained.
        samples: The same with their inputs.
        answers: The answer to each.
        language: How texts are made up.
        config: The options.
        marks: So many marks, or kinds of rows, each half of the samples proposes.
        phrases: So many phrases each half of the texts proposes.
    """
    roots = plan.of_inputs(samples)
    if evaluation.medium == "text":
        unnamed = "" if language.is_named else "families of words, for nothing names the tokens: pass tokenizer="
        return [*plan.of_texts(samples, answers, language, config.seed, phrases), *roots], [unnamed] if unnamed else []
    maps = [each.map_of_answer for each in evaluation.samples]
    if evaluation.medium == "rows":
        if name := cannot_meet(samples):
            return roots, [f"rows, of which {name!r} has another size in each sample, and not along the rows alone"]
        return [*plan.of_rows(samples, maps, answers, config.seed, marks), *roots], []
    if evaluation.medium == "volume":
        return [*plan.of_volumes(samples), *roots], []
    grids = [each.grid for each in evaluation.samples if each.grid is not None]
    axes = {x.ndim for sample in samples for name, x in sample.tensors.items() if name in IMAGES}
    if len(grids) < len(samples) or axes != {3}:
        return roots, ["parts of an input that is no image, no text and no rows: lrptrain.attribute explains it"]
    untested = []
    if len({size_of(sample) for sample in samples}) > 1:
        marks, untested = 0, ["marks, which need images of one size"]
    return [
        *plan.of_images(samples, maps, (grids[0][0], grids[0][1]), answers, config.seed, config.region_names, marks),
        *roots,
    ], untested
