"""From a user's batches to the monitor's sample: batches are read, checked and drawn from."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lrptrain.batch import Sample, read_batch
from lrptrain.batch.checks import Limits, unusable, vocabulary_size
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.task import find_task
from lrptrain.monitor.annotated import merged, survey, without_annotations
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.loader_pass import PlacedBatch
from lrptrain.monitor.model_input import InputListener, check_bytes, check_model_input
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.relevance.preserve import preserved
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.processes import gather, in_every_process_of


class SampleReader:
    """Draws a fixed sample of a validation set from its batches, and says what is wrong with them.

    Args:
        config: The options of the monitor.
        warn: Says something to the user, in the first process.

    Attributes:
        sample: The sample that is drawn.
        limits: What values may be at most, as far as it is known.
        png_masks: Whether masks are those of PNG files, as far as batches have told.
        misread: Why the annotations of the sample are not used; "" if they are.
        is_wrong: Whether a batch was not what the user's step gives the model, in any process.
    """

    def __init__(self, config: MonitorConfig, warn: Callable[[str], None]) -> None:
        self._config = config
        self._warn = warn
        self.limits = Limits()
        self.png_masks = PngMasks()
        self.misread = ""
        self.is_wrong = False
        self.start()

    def start(self) -> None:
        """Draw the sample anew, as from other data."""
        self.sample = ValidationSample(self._config.max_samples, self._config.seed, self.limits)

    @property
    def is_drawn(self) -> bool:
        """Whether the sample is complete."""
        return self.sample.samples is not None

    def read(self, batch: Any) -> dict[str, Any]:
        """Return a batch in the contract's form."""
        return read_batch(batch, self._config.batch_adapter, find_task(self._config.task))

    def limit_classes(self, classes: int) -> None:
        """Set how many classes there are, before the sample is drawn."""
        self.limits = replace(self.limits, classes=classes)

    def check(self, context: TrainingContext, batch: Any, listener: InputListener | None = None) -> None:
        """Reject a batch that cannot be used, while an error costs nothing.

        Args:
            context: The model that is given it.
            batch: The batch as it comes.
            listener: What the user's step gave the model; None if nobody listened.

        Raises:
            ValueError: With the sample's id, if it is one, what is wrong and how it is mended; or if the model is one
                of another task.
        """
        find_task(self._config.task, context.model)  # a model may say that its output means something else
        contract_batch = self.read(batch)
        self.png_masks.add(contract_batch)
        self.limits = replace(self.limits, vocabulary=vocabulary_size(context.model))
        self._check_input(context, contract_batch, listener)
        self.check_values(contract_batch)

    def check_values(self, batch: dict[str, Any]) -> None:
        """Reject a batch, in the contract's form, with values that no sample can have.

        Raises:
            ValueError: With the first sample that has some.
        """
        for row, problem in unusable(batch, self.limits).items():
            name = f"the sample {batch['sample_id'][row]}" if "sample_id" in batch else f"sample {row} of its batch"
            raise ValueError(f"{self._config.title} cannot use {name}: {problem}")

    def add_placed(self, placed: PlacedBatch) -> None:
        """Let the samples of a batch compete for the places, wherever in the set they stand.

        Raises:
            ValueError: If the batch cannot be read.
        """
        self.sample.add_batch(self.read(placed.batch), indices=placed.places)

    def add(
        self, context: TrainingContext, batch: Any, set_length: float, listener: InputListener | None = None
    ) -> None:
        """Let the samples of a batch compete for the places; batches come in the order of the validation set.

        Args:
            context: The model that is given it.
            batch: The batch as it comes.
            set_length: The length of the whole validation set, beyond which a distributed sampler pads.
            listener: What the user's step gave the model; None if nobody listened.

        Raises:
            ValueError: If the batch cannot be read, or is not what the model was given.
        """
        if listener is None:
            self.sample.add_batch(self.read(batch), set_length, share=context.data_share)
            return

        def add_checked() -> None:
            contract_batch = self.read(batch)
            self.sample.add_batch(contract_batch, set_length, share=context.data_share)
            self.is_wrong = True  # until it is checked
            self._check_input(context, contract_batch, listener)
            self.is_wrong = False

        in_every_process_of(context.module, add_checked)

    def _check_input(self, context: TrainingContext, batch: dict[str, Any], listener: InputListener | None) -> None:
        """Reject a batch that is not what the user's step gave the model."""
        if listener is None:
            return
        check_model_input(listener, batch, context.step_name)
        with preserved(context.module):
            check_bytes(context.model, batch, listener.heard, context.step_name)
        if listener.answers is not None:
            listener.answers.check(context.forward_context)

    def finish(self, note: Callable[[str, Exception], None]) -> list[Sample]:
        """Return what this process has of the sample; after the draw, look at its annotations as a whole.

        All processes must call it at the same time.

        Args:
            note: Takes what was done, and the failure, if the annotations cannot be used.
        """
        if self.sample.samples is not None:
            return self.sample.samples
        samples = self.sample.finish()
        self.is_wrong = any(gather(self.is_wrong))
        if self.sample.repeats is not None:
            several, different = self.sample.repeats
            self._warn(
                f"{self._config.title}: {several} samples have {different} different ids: `sample_id` must tell "
                "samples of the whole validation set apart, or be left out of the batch; here their place in it is "
                "written behind the id"
            )
        annotations = merged(gather(survey(samples)))
        self.misread = annotations.misread
        if annotations.misread:
            self.sample.samples = without_annotations(samples)
            note("reading the masks", ValueError(f"{annotations.misread}. The annotations are not used"))
        elif annotations.remark:
            self._warn(f"{self._config.title}: {annotations.remark}")
        return self.sample.samples or []
