"""The record of an evaluation: findings, scalars, tables and drawings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from lrptrain.cues.search import Judged
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language
from lrptrain.findings import Finding, reliance
from lrptrain.loggers import EpochRecord
from lrptrain.loggers.local import PROOFS, evaluation_name
from lrptrain.loggers.metrics import key_names
from lrptrain.monitor import drawing, summary
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.judgement import Judgement
from lrptrain.monitor.power import inputs_among
from lrptrain.monitor.proving import Example, with_proofs
from lrptrain.monitor.reporting import findings_of, news_among
from lrptrain.trainers.naming import NameSources, class_names_or_numbers, find_tokenizer, find_tokens, has_tokenizer

UNTESTED = Judgement()


@dataclass(frozen=True)
class RecordBuilder:
    """Turns what was explained and tested into the record of an evaluation.

    Attributes:
        class_names: The name of each class, in the order of the logits; None for those of the name sources.
        tokenizer: A tokenizer, its name or its folder; None for that of the name sources.
        mean: The mean of each channel with which images were normalised.
        std: The standard deviation of each channel with which images were normalised.
    """

    class_names: Sequence[str] | None = None
    tokenizer: Any = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def language(self, sources: NameSources, model: nn.Module) -> Language:
        """Return how the texts of a model are made up."""
        tokenizer = find_tokenizer(self.tokenizer, sources)
        return Language(find_tokens(self.tokenizer, sources), text_form(tokenizer, model), tokenizer is not None)

    def build(
        self,
        evaluation: Evaluation,
        sources: NameSources,
        judgement: Judgement = UNTESTED,
        previous: Sequence[Finding] = (),
        guidance: str = Finding.guidance,
    ) -> EpochRecord:
        """Return the record of an evaluation, without drawings.

        Args:
            evaluation: All explained samples.
            sources: Objects that may have class names and a tokenizer.
            judgement: What the tests of cues have shown.
            previous: The findings of the evaluation before.
            guidance: How a swap of the faults is written.

        Raises:
            ValueError: If there are no samples, or the class names do not fit.
        """
        names = self.names(evaluation, sources)
        tokens = find_tokens(self.tokenizer, sources)
        findings = findings_of(judgement.judged, evaluation, names, tokens, previous, guidance)
        return EpochRecord(
            epoch=evaluation.epoch,
            step=evaluation.step,
            scalars=summary.scalars(evaluation.samples, names) | _reliances(judgement.judged, findings),
            samples=summary.table(evaluation.samples, names),
            findings=findings,
            new_findings=news_among(previous, findings),
            class_names=names,
            metrics=summary.logged_metrics(),
        )

    def draw(
        self,
        record: EpochRecord,
        displayed: Sequence[ExplainedSample],
        sources: NameSources,
        evaluation: Evaluation | None = None,
    ) -> EpochRecord:
        """Return the record with pictures or highlighted texts, and with the inputs of its samples.

        Args:
            record: The record without drawings.
            displayed: The samples to draw, with inputs and annotations.
            sources: As for `build`.
            evaluation: The whole sample, to keep the inputs of all samples; None for those of `displayed` alone.
        """
        options = self.options(record.class_names, sources)
        with_inputs = [(each.sample, each.grid) for each in displayed]  # first, in case the record's budget ends
        if displayed and evaluation is not None and evaluation.inputs is not None:
            grids = (each.grid for each in evaluation.samples)
            with_inputs += zip(evaluation.inputs, grids, strict=True)
        return replace(
            record,
            pictures=drawing.pictures(displayed, options),
            texts=drawing.highlights(displayed, options),
            inputs=drawing.inputs(with_inputs, options, any(each.are_rows for each in displayed)),
        )

    def prove(
        self,
        record: EpochRecord,
        judgement: Judgement,
        examples: dict[int, list[Example]],
        sources: NameSources,
    ) -> EpochRecord:
        """Return the record with the proofs of what is named.

        Args:
            record: The record with its findings.
            judgement: What was tested.
            examples: Samples that show it; see `lrptrain.monitor.proving`.
            sources: As for `build`.
        """
        if not judgement.measures:
            return record
        folder = f"{PROOFS}/{evaluation_name(record.epoch, record.step)}"
        options = self.options(record.class_names, sources)
        findings = with_proofs(record.findings, judgement, examples, options, folder)
        proven = {each.identity: each for each in findings}
        return replace(record, findings=findings, new_findings=[proven[each.identity] for each in record.new_findings])

    def options(self, class_names: Sequence[str], sources: NameSources) -> drawing.DisplayOptions:
        """Return how samples are drawn."""
        return drawing.DisplayOptions(class_names, find_tokens(self.tokenizer, sources), self.mean, self.std)

    def names_tokens(self, sources: NameSources) -> bool:
        """Return whether a tokenizer was found, so that tokens have other names than their ids."""
        return has_tokenizer(self.tokenizer, sources)

    def names(self, evaluation: Evaluation, sources: NameSources) -> list[str]:
        """Return the names of the classes.

        Raises:
            ValueError: If there are no samples, or the class names do not fit.
        """
        if not evaluation.samples:
            raise ValueError("the validation set gave no samples")
        names = class_names_or_numbers(self.class_names, sources, evaluation.samples[0].num_logits)
        # A number alone is no label that a person knows.
        return [f"label {name}" if evaluation.num_labels and name.isdecimal() else name for name in names]


def _reliances(judged: Sequence[Judged], findings: Sequence[Finding]) -> dict[str, float]:
    """Return the scalars of what the model reads; nan where nothing was tested."""
    faults = [each for each in judged if each.cue.role == "fault"]
    named = [each.effect.low for each in judged if each.named]
    inputs = inputs_among(judged)
    keys = key_names([cue.argument for cue, _ in inputs])
    return {
        **{f"relevance/input/{key}": effect.mean for key, (_, effect) in zip(keys, inputs, strict=True)},
        "relevance/reliance": reliance(findings) if faults else math.nan,
        "relevance/reads": max([0.0, *named]) if judged else math.nan,
        "relevance/findings": float(sum(each.is_fault for each in findings)) if faults else math.nan,
    }
