"""From a user's batches to the monitor's sample: batches are read, checked and drawn from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lrptrain.batch import IMAGES, Sample, collate, model_inputs, read_batch
from lrptrain.batch.call import (
    ARGUMENT,
    CALL,
    Call,
    explained_argument,
    missing_arguments,
    needs,
    parameters_below,
    parameters_of,
    takes,
)
from lrptrain.batch.checks import Limits, unusable, vocabulary_size
from lrptrain.batch.chunks import flattened
from lrptrain.batch.content import SPECIAL, ends_of_texts, special_tokens
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import ANNOTATIONS, of_one_row
from lrptrain.batch.rows import as_rows
from lrptrain.batch.task import Task, find_task
from lrptrain.cues.annotator import Annotator
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import UNNAMED, Language
from lrptrain.monitor.annotated import merged, survey, without_annotations
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.model_input import InputListener, by_names, check_bytes, with_call, without_given
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.relevance.model.preserve import preserved
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.processes import gather, in_every_process_of


def _is_text(sample: Sample) -> bool:
    return "input_ids" in sample.tensors and not sample.tensors.keys() & set(IMAGES)


class _Model(NamedTuple):
    """What of the model the reading of batches goes by."""

    takes_attention_mask: bool = False
    takes_mask: bool = False
    padding: int = 0


class SampleReader:
    """Draws a fixed sample of a validation set from its batches, and says what is wrong with them.

    Attributes:
        misread: Why the annotations of the sample are not used; "" if they are.
        is_wrong: Whether a batch was not what the user's step gives the model, in any process.
        in_order: Whether batches come in the order of the dataset; else its indices are not known.
    """

    def __init__(self, config: MonitorConfig, warn: Callable[[str], None]) -> None:
        self._config = config
        self._warn = warn
        self.limits = Limits()
        self.png_masks = PngMasks()
        self.misread = ""
        self.is_wrong = False
        self.in_order = True
        self.learn: Callable[[], Language] = UNNAMED
        self._annotator = None if config.annotate is None else Annotator(config.annotate)
        self._language: Language | None = None
        self._model = _Model()
        self.start()

    def start(self) -> None:
        """Draw the sample anew, as from other data."""
        self._call: Call | None = None
        self._image_name = ""
        self._has_ids: bool | None = None  # before there is a batch
        self.sample = ValidationSample(self._config.max_samples, self._config.judge.seed, self.limits, self.in_order)

    @property
    def counts_its_pass(self) -> bool:
        """Whether samples have neither an id nor a known index in the dataset."""
        return not self.in_order and self._has_ids is False

    @property
    def is_drawn(self) -> bool:
        """Whether the sample is complete."""
        return self.sample.samples is not None

    def read(self, context: TrainingContext, batch: Any, listener: InputListener | None = None) -> dict[str, Any]:
        """Return a batch in the contract's form, with the arguments that the model is given.

        Where nobody listened, these are the entries of the batch that its forward has parameters for.
        """
        net = context.model
        self._model = _Model(takes(net, "attention_mask"), takes(net, "mask"), text_form(None, net).padding.token)
        call: Call | None = None
        if listener is None and self._config.explain is not None:
            columns = self._entries(batch, needs_input=False)
            columns = by_names(context.model, columns, self._config.explain)
        elif listener is None or not listener.calls:
            columns = self._entries(batch)
            if listener is not None:
                columns = with_call(listener, columns, self._config.explain, context.names.step)
        else:
            columns = self._entries(without_given(batch, listener), needs_input=False)
            bare = () if self._call is None else self._call.bare
            columns = of_one_row(columns) if bare else columns
            columns = with_call(listener, columns, self._config.explain, context.names.step, bare)
            call = columns.get(CALL)
        if call is None:
            return self._named_alike(self._by_name(context, columns))
        changed = "" if self._call is None else call.differs_from(self._call)
        if changed:
            raise ValueError(
                f"{context.names.step} gives the model another {changed!r} in each batch, which belongs to no "
                "sample: let the dataset give it, as a tensor [samples, ...]"
            )
        self._call = self._call or call
        return self._named_alike(columns)

    def _entries(self, batch: Any, needs_input: bool = True) -> dict[str, Any]:
        config = self._config
        return read_batch(batch, config.batch_adapter, config.meaning, needs_input, bool(config.show.region_names))

    def _named_alike(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return a batch whose images have the name that those of the first batch have: two names mean the same."""
        name = next((name for name in IMAGES if name in columns), "")
        first = self._image_name = self._image_name or name
        named = {first if name and key == name else key: x for key, x in columns.items()}
        return flattened(as_rows(named, self._model.takes_mask))

    def _by_name(self, context: TrainingContext, columns: dict[str, Any]) -> dict[str, Any]:
        """Return a batch without what the model's forward has no parameter for."""
        known = parameters_below(context.model)
        columns = {
            name: x for name, x in columns.items() if not name.startswith(ARGUMENT) or name[len(ARGUMENT) :] in known
        }
        missing = missing_arguments(context.model, columns)
        if missing:
            raise ValueError(f"{needs(context.model, missing)}. {context.names.step_hint}")
        return columns

    def is_by_name(self, context: TrainingContext, batch: Any, listener: InputListener) -> bool:
        """Return whether the entries of a batch, by their names, are all that the step gave the model."""
        heard = self.read(context, batch, listener)
        self._call = None
        try:
            by_name = self.read(context, batch)
            given, expected = (model_inputs(context.model, each) for each in (by_name, heard))
        except ValueError:
            return False
        if isinstance(expected, Tensor):  # nothing of the batch was heard
            return isinstance(given, Tensor)
        if isinstance(given, Tensor):
            name = str(explained_argument(expected))
            first = next(iter(parameters_of(context.model).values()))
            if first.name != name or first.kind is first.KEYWORD_ONLY:
                return False
            given = {name: given}
        if CALL in heard and (heard[CALL].constants or heard[CALL].bare):
            return False
        return given.keys() == expected.keys() and all(torch.equal(given[name], x) for name, x in expected.items())

    def limit_classes(self, classes: int) -> None:
        """Set how many classes there are, before the sample is drawn."""
        self.limits = replace(self.limits, classes=classes)

    def check(self, context: TrainingContext, batch: Any, listener: InputListener | None = None) -> dict[str, Any]:
        """Reject a batch that cannot be used, while an error costs nothing, and return it in the contract's form."""
        if not isinstance(self._config.task, Task):
            find_task(
                self._config.task, context.model, several=True
            )  # a model may say that its output means something else
        contract_batch = self.read(context, batch, listener)
        self.png_masks.add(contract_batch)
        self.limits = replace(self.limits, vocabulary=vocabulary_size(context.model))
        self._check_input(context, contract_batch, listener)
        self.check_values(contract_batch)
        return contract_batch

    def check_values(self, batch: dict[str, Any]) -> None:
        """Reject a batch, in the contract's form, with values that no sample can have."""
        for row, problem in unusable(batch, self.limits).items():
            name = f"the sample {batch['sample_id'][row]}" if "sample_id" in batch else f"sample {row} of its batch"
            raise ValueError(f"{self._config.title} cannot use {name}: {problem}")

    def marked(self, samples: Sequence[Sample], is_all: bool = False) -> list[Sample]:
        """Return texts with which of their tokens are special; `is_all`: all processes call it."""
        texts = [{name: x[None] for name, x in each.tensors.items()} for each in samples if _is_text(each)]
        own = [ends_of_texts(text) for text in texts]
        found = [ends for each in (gather(own) if is_all else [own]) for ends in each]
        if not texts:
            return list(samples)
        seen = [set[int]().union(*each) for each in zip(*found, strict=True)]
        self._language = self._language or self.learn()
        form = self._language.form
        special = iter([special_tokens(text, form.ends, form.padding.token, seen)[0] for text in texts])
        return [
            replace(each, tensors={**each.tensors, SPECIAL: next(special)}) if _is_text(each) else each
            for each in samples
        ]

    def annotated(self, sample: Sample) -> Sample:
        """Return a sample with the annotation that is made of it, if one is."""
        if self._annotator is None:
            return sample
        entries = collate([sample]) | {"label": torch.tensor([sample.label]), "sample_id": [sample.sample_id]}
        made = self._annotator(entries, self._language)
        return replace(sample, tensors=sample.tensors | {name: made[name][0] for name in ANNOTATIONS if name in made})

    def _fill_masks(self) -> None:
        """Take texts that come without attention masks as full, unless some hold the token that fills up others."""
        samples = self.sample.samples or []
        texts = [each.tensors["input_ids"] for each in samples if "input_ids" in each.tensors]
        masked = any("attention_mask" in each.tensors for each in samples)
        filled = any(x.ndim != 1 or bool((x == self._model.padding).any()) for x in texts)
        if any(gather(masked or filled)) or not (texts and self._model.takes_attention_mask):
            return
        self.sample.samples = [
            replace(
                each,
                tensors={**each.tensors, "attention_mask": torch.ones_like(text)},
                call=None if each.call is None else each.call.with_mask(),
            )
            for each, text in zip(samples, texts, strict=True)
        ]

    def _annotate(self) -> None:
        """Annotate the sample that is drawn, and leave out what cannot be."""
        problems: dict[int | str, str] = {}
        annotated = []
        for sample in self.sample.samples or []:
            try:
                annotated.append(self.annotated(sample))
            except ValueError as error:
                problems[sample.sample_id] = str(error)
        self.sample.samples = annotated
        self.sample.left_out |= problems

    def add(
        self, context: TrainingContext, batch: Any, set_length: float, listener: InputListener | None = None
    ) -> None:
        """Let the samples of a batch compete for the places; batches come in the order of the validation set.

        Beyond `set_length`, the length of that set, a distributed sampler pads.
        """

        def add() -> dict[str, Any]:
            contract_batch = self.read(context, batch, listener)
            self._has_ids = "sample_id" in contract_batch
            self.sample.add_batch(contract_batch, set_length, share=context.data_share)
            return contract_batch

        def add_checked() -> None:
            self.is_wrong = True  # until it is checked
            self._check_input(context, add(), listener)
            self.is_wrong = False

        if self._has_ids is None:
            self._has_ids = False  # also of a batch that fails
            in_every_process_of(context.module, add_checked)
        elif not self.is_wrong:
            add()

    def _check_input(self, context: TrainingContext, batch: dict[str, Any], listener: InputListener | None) -> None:
        """Reject images that the model takes otherwise as bytes, and a sharded model that answers otherwise."""
        if listener is None:
            return
        with preserved(context.module):
            check_bytes(context.model, batch, listener, context.names.step)
        if listener.answers is not None:
            listener.answers.check(context.forward_context)

    def finish(self, note: Callable[[str, Exception], None]) -> list[Sample]:
        """Return what this process has of the sample; after the draw, look at its annotations as a whole.

        All processes must call it at the same time. `note` takes the failure, if the annotations cannot be used.
        """
        if self.sample.samples is not None:
            return self.sample.samples
        self.sample.finish()
        self._fill_masks()
        self.sample.samples = self.marked(self.sample.samples or [], is_all=True)
        self._annotate()
        samples: list[Sample] = self.sample.samples or []
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
