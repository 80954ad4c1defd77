"""The second stage of a monitor: the maps of its sample, by all processes together."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lrptrain.monitor.budget import Extent
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.gathering import GatheredInputs, GatheredSamples, gather_explained, gather_inputs, ids_to_draw
from lrptrain.monitor.isolation import explain_usable
from lrptrain.monitor.left_out import LeftOut
from lrptrain.monitor.state import RunState, state
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.failures import Failures, describe_error
from lrptrain.trainers.progress import no_bar


class Explainer(RunState):
    """Explains the sample, and keeps to one method; samples that cannot be used are left out.

    Args:
        config: The options.
        inform: Says something to the user, in the first process.
        warn: Warns the user, in the first process.

    Attributes:
        method: The method; None before the first maps, where none was named.
        inputs: The samples of all processes with their inputs; None before they are asked for.
        left_out: What is left out, and why.
    """

    # Checkpoints of earlier versions name none: their monitors were given one, which the state's key holds.
    method: str | None = state(lambda self: self._config.method, "method")
    inputs: GatheredInputs | None = state(lambda _: None)
    left_out: LeftOut = state(lambda _: LeftOut())

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._config = config
        self._inform = inform
        self._warn = warn

    def evaluator(self, context: TrainingContext, class_maps: int) -> Evaluator:
        """Return what runs the model as it stands now, with the trainer's autocast."""
        explanation = replace(self._config.explanation, method=self.method, class_maps=class_maps)
        return Evaluator(context.model, explanation, context.device, context.forward_context)

    def explain(
        self, context: TrainingContext, sample: ValidationSample, extent: Extent, failures: Failures
    ) -> tuple[Evaluator, GatheredSamples] | None:
        """Explain the first samples of a sample; every process takes part.

        Args:
            context: The model.
            sample: The sample.
            extent: How much of it is explained and drawn.
            failures: Takes what fails in any process.

        Returns:
            What ran the model, and what all processes explained; None after a failure.
        """
        samples = sample.first(extent.samples)
        drawn = ids_to_draw(samples, extent.drawn)
        try:
            evaluator = self.evaluator(context, extent.class_maps)
            progress = context.progress if self._config.run.progress_bar else no_bar
            local, problems = explain_usable(evaluator, samples, progress, drawn)
        except Exception as error:
            # The other processes wait for this one.
            self._leave_out(sample, gather_explained([], describe_error(error), extent.drawn, sample.left_out))
            failures.note("computing relevance", error)
            return None
        gathered = gather_explained(local, "", extent.drawn, {**sample.left_out, **problems})
        self._leave_out(sample, gathered)
        if gathered.error:
            failures.note("computing relevance", RuntimeError(gathered.error))
            return None
        self.decide_method(gathered.explained)
        # Only maps and scores travel in every epoch; inputs do so once, as the sample stays the same.
        if self._config.cues is not None and not self._has_inputs_of(gathered.explained):
            self.inputs = gather_inputs(sample.first(extent.samples))
        return evaluator, gathered

    def decide_method(self, explained: Sequence[ExplainedSample]) -> None:
        """Keep to the method of the first maps, where none was named.

        Raises:
            RuntimeError: If several processes came to different ones.
        """
        names = sorted({each.method for each in explained})
        if len(names) > 1:
            raise RuntimeError(f"the processes explain by {' and '.join(names)}: name one with method=")
        if self.method is None and names:
            self.method = names[0]
            default = DEFAULT_METHODS[0]
            if self.method != default:
                self._inform(f"{self._config.title}: the maps are by {self.method}, for {default} cannot make any")

    def _leave_out(self, sample: ValidationSample, gathered: GatheredSamples) -> None:
        """Go on without the samples that could not be used, and name each of them once.

        Raises:
            ValueError: If no sample is left.
        """
        sample.leave_out(gathered.left_out)
        line = self.left_out.add(gathered.left_out)
        if not gathered.explained and not gathered.error and self.left_out.problems:
            raise ValueError(f"no sample of the validation can be used. {line}")
        if line and self._config.run.on_error == "raise":
            raise ValueError(f"{self._config.title}: {line}")
        if line:
            self._warn(f"{self._config.title}: {line}")

    def _has_inputs_of(self, explained: Sequence[ExplainedSample]) -> bool:
        """Return whether the inputs at hand are those of these samples; it is the same in all processes."""
        ids = [each.sample.sample_id for each in explained]
        return self.inputs is not None and [sample.sample_id for sample in self.inputs.samples] == ids
