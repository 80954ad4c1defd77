"""The second stage of a monitor: the maps of its sample, by all processes together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lrptrain.batch import Sample
from lrptrain.findings.sentences import MOST_NAMES
from lrptrain.monitor.budget import EvaluationSize
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.display import choose_displayed, choose_in_turn
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.state import RunState, state
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.failures import Failures, describe_error
from lrptrain.trainers.processes import gather, gather_to_first, rank_and_size
from lrptrain.trainers.progress import no_bar

LEFT_OUT = "left_out.json"


class GatheredSamples(NamedTuple):
    """What all processes explained.

    Attributes:
        explained: All samples, without inputs and annotations; none if a process failed.
        displayed: The samples to draw, complete, in the first process; none in the others.
    """

    explained: list[ExplainedSample]
    displayed: list[ExplainedSample]
    error: str
    left_out: dict[int | str, str]


class Explainer(RunState):
    """Explains the sample, and keeps to one method; samples that cannot be used are left out.

    Attributes:
        inputs: The samples of all processes with inputs and annotations, and the indices of those that this process
            explains and intervenes on; None before they are asked for.
    """

    # Checkpoints of earlier versions name none: their monitors were given one, which the state's key holds.
    method: str | None = state(lambda self: self._config.method, "method")
    inputs: tuple[list[Sample], list[int]] | None = state(lambda _: None)
    left_out: dict[int | str, str] = state(lambda _: {})

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None], warn: Callable[[str], None]) -> None:
        super().__init__(config, inform)
        self._warn = warn

    def evaluator(self, context: TrainingContext, class_maps: int) -> Evaluator:
        """Return what runs the model as it stands now, with the trainer's autocast."""
        return Evaluator(context.model, self._config, context.device, context.forward_context, self.method, class_maps)

    def explain(
        self, context: TrainingContext, sample: ValidationSample, size: EvaluationSize, failures: Failures
    ) -> tuple[Evaluator, GatheredSamples] | None:
        """Explain the first samples of a sample; every process takes part. None after a failure."""
        samples = sample.first(size.samples)
        drawn = ids_to_draw(samples, size.drawn)
        try:
            evaluator = self.evaluator(context, size.class_maps)
            progress = context.output.progress if self._config.run.progress_bar else no_bar
            local, problems = evaluator.explain_usable(samples, progress, drawn)
        except Exception as error:
            # The other processes wait for this one.
            self._leave_out(sample, gather_explained([], describe_error(error), size.drawn, sample.left_out))
            failures.note("computing relevance", error)
            return None
        gathered = gather_explained(local, "", size.drawn, {**sample.left_out, **problems})
        self._leave_out(sample, gathered)
        if gathered.error:
            failures.note("computing relevance", RuntimeError(gathered.error))
            return None
        self.decide_method(gathered.explained)
        # Only maps and scores travel in every epoch; inputs do so once, as the sample stays the same.
        if self._config.cues is not None:
            known = None if self.inputs is None else [each.sample_id for each in self.inputs[0]]
            if known != [each.sample.sample_id for each in gathered.explained]:
                self.inputs = gather_inputs(sample.first(size.samples))
        return evaluator, gathered

    def decide_method(self, explained: Sequence[ExplainedSample]) -> None:
        """Keep to the method of the first maps, where none was named."""
        names = sorted({each.method for each in explained})
        if len(names) > 1:
            raise RuntimeError(f"the processes explain by {' and '.join(names)}: name one with method=")
        if self.method is None and names:
            self.method = names[0]
            default = DEFAULT_METHODS[0]
            if self.method != default:
                self._inform(f"{self._config.title}: the maps are by {self.method}, for {default} cannot make any")

    def _leave_out(self, sample: ValidationSample, gathered: GatheredSamples) -> None:
        """Continue without the samples that could not be used, and name each of them once."""
        sample.samples = [each for each in sample.samples or [] if each.sample_id not in gathered.left_out]
        line = _line({key: problem for key, problem in gathered.left_out.items() if key not in self.left_out})
        self.left_out |= gathered.left_out
        if not gathered.explained and not gathered.error and self.left_out:
            raise ValueError(f"no sample of the validation can be used. {line}")
        if line and self._config.run.on_error == "raise":
            raise ValueError(f"{self._config.title}: {line}")
        if line:
            self._warn(f"{self._config.title}: {line}")


def ids_to_draw(local: Sequence[Sample], max_displayed: int) -> set[int | str]:
    """Return the ids of the samples that will be drawn, if all can be explained; every process must call it."""
    # In the order of `gather_explained`, so that both choose the same.
    keys = sorted(key for part in gather([_sort_key(sample) for sample in local]) for key in part)
    return {keys[i][2] for i in choose_in_turn([label for label, _, _ in keys], max_displayed)}


def gather_explained(
    local: Sequence[ExplainedSample], error: str, max_displayed: int, left_out: Mapping[int | str, str] | None = None
) -> GatheredSamples:
    """Gather the explained samples of all processes; every process must call it, also one that failed."""
    # Inputs stay where they are: only maps and scores travel to all processes.
    light = [replace(each, sample=replace(each.sample, tensors={}), class_maps={}) for each in local]
    parts = gather((light, error, left_out or {}))
    problems = {sample_id: problem for _, _, part in parts for sample_id, problem in part.items()}
    first_error = next((f"{why} (process {rank})" for rank, (_, why, _) in enumerate(parts) if why), "")
    if first_error:
        return GatheredSamples([], [], first_error, problems)
    # Two processes have samples 0, 2, 4 and 1, 3, 5, a single one has 0 to 5: sorted, both give the same rows, and so
    # the same bootstrap resamples, sources, tables and findings.
    explained = sorted((each for part, _, _ in parts for each in part), key=lambda each: _sort_key(each.sample))
    keys = [_sort_key(each.sample) for each in choose_displayed(explained, max_displayed)]
    # Only the first process draws, and needs the inputs of what it draws.
    mine = [each for each in local if _sort_key(each.sample) in set(keys)]
    complete = {_sort_key(each.sample): each for part in gather_to_first(mine) for each in part}
    return GatheredSamples(explained, [complete[key] for key in keys if key in complete], "", problems)


def gather_inputs(local: Sequence[Sample]) -> tuple[list[Sample], list[int]]:
    """Gather the samples of all processes with their inputs, see `Explainer.inputs`; every process must call it."""
    rank = rank_and_size()[0]
    pairs = [(sample, owner) for owner, part in enumerate(gather(list(local))) for sample in part]
    # The same order as that of `gather_explained`, so that indices mean the same samples in both.
    pairs.sort(key=lambda pair: _sort_key(pair[0]))
    return [sample for sample, _ in pairs], [row for row, (_, owner) in enumerate(pairs) if owner == rank]


def _sort_key(sample: Sample) -> tuple[int, str, int | str]:
    """Order by class, then by id; numbers come before strings, with which they cannot be compared."""
    return sample.label, type(sample.sample_id).__name__, sample.sample_id


def _line(new: Mapping[int | str, str]) -> str:
    """Return one line about samples that are left out from now on, with what is wrong by id; "" without any."""
    if not new:
        return ""
    # Samples with one problem together: "3, 17: 'image' holds NaN ...; 5: the label 9 is ..."
    by_problem: dict[str, list[str]] = {}
    for sample_id, problem in new.items():
        by_problem.setdefault(problem, []).append(str(sample_id))
    parts = [f"{', '.join(ids[:MOST_NAMES])}: {problem}" for problem, ids in by_problem.items()]
    named = sum(min(len(ids), MOST_NAMES) for ids in list(by_problem.values())[:MOST_NAMES])
    rest = f"; and {len(new) - named} more, see {LEFT_OUT}" if len(new) > named else ""
    what = "sample is" if len(new) == 1 else "samples are"
    return f"{len(new)} {what} left out for the rest of the run. {'; '.join(parts[:MOST_NAMES])}{rest}"
