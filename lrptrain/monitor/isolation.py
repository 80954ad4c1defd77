"""An evaluation that goes on without the samples that the model, or the method, cannot take."""

from collections.abc import Collection, Sequence

from lrptrain.batch import Sample
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.progress import Progress, no_bar


def explain_usable(
    evaluator: Evaluator, samples: Sequence[Sample], progress: Progress = no_bar, drawn: Collection[int | str] = ()
) -> tuple[list[ExplainedSample], dict[int | str, str]]:
    """Explain samples; if that fails for some of them alone, the others.

    Args:
        evaluator: The model and how it is explained.
        samples: The samples, all images or all texts.
        progress: Shows how many are done.
        drawn: The ids of the samples that will be drawn.

    Returns:
        What was explained; and why samples were left out, by their ids.

    Raises:
        Exception: What the evaluation raised, if it fails for every sample, or for samples together that it explains
            one by one: then none of them is to blame.
    """
    try:
        return evaluator.evaluate(samples, progress, drawn), {}
    except Exception as error:
        # One sample fails its batch. Which one, only an evaluation of each by itself can tell.
        problems = {sample.sample_id: _problem(evaluator, sample) for sample in samples}
        problems = {sample_id: problem for sample_id, problem in problems.items() if problem}
        usable = [sample for sample in samples if sample.sample_id not in problems]
        if not problems or not usable:
            raise error
    return evaluator.evaluate(usable, progress, drawn), problems


def _problem(evaluator: Evaluator, sample: Sample) -> str:
    try:
        evaluator.evaluate([sample])
    except Exception as error:
        return describe_error(error)
    return ""
