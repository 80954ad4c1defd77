"""Relevance and scores of samples under the current weights."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.batch import Sample, collate, model_inputs, token_annotations
from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.batch.call import explained_argument, of_batches, samples_of
from lrptrain.batch.content import content_tokens
from lrptrain.batch.rows import grid_sizes, has_rows, rows_in
from lrptrain.batch.sizes import by_size
from lrptrain.batch.task import LABELS, NO_LABEL, of_all_labels
from lrptrain.loggers.record import ClassMap
from lrptrain.metrics import energy_pointing_game
from lrptrain.metrics.localization import LOCALIZATION_METRICS
from lrptrain.monitor.class_maps import explain_classes, explains_classes, ranked_maps, unexplained_classes
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.relevance import Recording, Relevance, attribute, decompose, record
from lrptrain.relevance.swapped.plans import needs_tape
from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.progress import Progress, no_bar

logger = logging.getLogger(__name__)

MEASURES: dict[str, Callable[[Tensor, TokenAnnotation], Tensor]] = {
    metric.key: metric.function for metric in LOCALIZATION_METRICS
}


@dataclass(frozen=True)
class Evaluator:
    """Runs a model on samples: explains them, and serves the tests of cues and maps of further classes.

    Without a `method`, it is the default one, or what takes its place for this model.
    """

    model: nn.Module
    config: MonitorConfig
    device: torch.device | str = "cpu"
    precision: Callable[[], AbstractContextManager] = nullcontext
    method: str | None = None
    class_maps: int = 5

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Enter what every forward pass runs in: the precision, and how its output is read."""
        with self.precision(), self.config.meaning.reading():
            yield

    def evaluate(
        self, samples: Sequence[Sample], progress: Progress = no_bar, drawn: Collection[int | str] = ()
    ) -> list[ExplainedSample]:
        """Explain and score samples, all images or all texts, batch by batch; those without a label come last.

        Where no method is named, the first batch decides for all others. Samples that are `drawn` come first, and are
        explained for `class_maps` classes, from the recordings of their other maps.
        """
        explained: list[ExplainedSample] = []
        evaluator = self
        with progress(len(samples)) as advance:
            for batch_of_samples in _batches(samples, self.config.run.batch_size, drawn):
                is_drawn = batch_of_samples[0].sample_id in drawn
                explained += evaluator._evaluate_batch(batch_of_samples, self.class_maps if is_drawn else 0)
                evaluator = replace(self, method=explained[0].method)
                advance(len(batch_of_samples))
        return explained

    def explain_usable(
        self, samples: Sequence[Sample], progress: Progress = no_bar, drawn: Collection[int | str] = ()
    ) -> tuple[list[ExplainedSample], dict[int | str, str]]:
        """Explain samples, or those that can be; return also why others were left out, by their ids."""
        try:
            return self.evaluate(samples, progress, drawn), {}
        except Exception as error:
            # One sample fails its batch. Which one, only an evaluation of each by itself can tell.
            problems = {sample.sample_id: self._problem(sample) for sample in samples}
            problems = {sample_id: problem for sample_id, problem in problems.items() if problem}
            usable = [sample for sample in samples if sample.sample_id not in problems]
            if not problems or not usable:
                raise error
        return self.evaluate(usable, progress, drawn), problems

    def class_maps_of(self, displayed: Sequence[ExplainedSample], class_names: Sequence[str]) -> list[ClassMap]:
        """Return the maps of the most probable classes of each sample, the label's and the predicted one among them.

        Those that an evaluation has not made are made now. Empty for a method whose map is the same for all classes.
        """
        if not displayed:
            return []
        # Where no method is named, the maps that are there already say which one it is.
        method = self.method or displayed[0].method
        if not self._explains_classes(method, displayed[0].num_logits, self.class_maps):
            return []
        maps: list[ClassMap] = []
        for indices in by_size([each.sample for each in displayed], self.config.run.batch_size):
            for explained in self._completed([displayed[index] for index in indices], method):
                maps += ranked_maps(explained, class_names)
        return maps

    def _completed(self, samples: Sequence[ExplainedSample], method: str) -> list[ExplainedSample]:
        """Return samples with the maps that they lack, by one forward pass, if any lacks one."""
        probabilities = np.stack([explained.probabilities for explained in samples])
        explained = [list(each.maps_by_class) for each in samples]
        classes = unexplained_classes(probabilities, explained, self.class_maps)
        lacking = np.flatnonzero((classes >= 0).any(1)).tolist()
        if not lacking:
            return list(samples)
        batch = collate([samples[row].sample for row in lacking], self.device)
        with self.forward_context():
            recording = self._record(batch, model_inputs(self.model, batch))
            maps = explain_classes(recording, classes[lacking], method, self.config.method_options)
        maps_of_row = dict(zip(lacking, maps, strict=True))
        return [
            replace(each, class_maps=each.class_maps | maps_of_row.get(row, {})) for row, each in enumerate(samples)
        ]

    def _explains_classes(self, method: str, num_logits: int, num_classes: int) -> bool:
        return num_classes > 0 and explains_classes(method, self.config.method_options, num_logits)

    def _record(self, batch: dict[str, Any], inputs: Tensor | dict[str, Any]) -> Recording:
        return record(of_batches(self.model, batch), inputs, differentiable=False, explain=explained_argument(inputs))

    def _problem(self, sample: Sample) -> str:
        try:
            self.evaluate([sample])
        except Exception as error:
            return describe_error(error)
        return ""

    def _evaluate_batch(self, samples: Sequence[Sample], num_classes: int) -> Iterator[ExplainedSample]:
        batch = collate(samples, self.device)
        inputs = model_inputs(self.model, batch)
        with self.forward_context():
            # Several maps of one pass are walked back from a recording; one by a plan costs less.
            is_walked = num_classes > 0 or needs_tape(self.method, self.config.method_options)
            is_recorded = is_walked or self.config.meaning.has_labels or of_batches(self.model, batch) is not self.model
            recording = self._record(batch, inputs) if is_recorded else None
            relevance = self._explain(recording, inputs, samples)
            probabilities = self.config.meaning.probabilities(_first(relevance).logits).cpu().numpy()
            class_maps = self._explain_classes(recording, relevance, probabilities, num_classes)
            del recording  # before anything else takes memory
            ratios = _mixing_ratios(of_batches(self.model, batch), batch) if self.config.show.mixing_ratios else {}
        first = _first(relevance)
        are_rows = _are_rows(batch, first)
        grid = None if are_rows else first.grid
        is_series = has_rows(batch) and first.grid is None and not are_rows
        places = (first.scores.shape[1],) if is_series else grid
        evidence, regions = token_annotations(batch, places, self.config.show.region_names)
        # columns[name][i] is the value of sample i, such as columns["label/energy_pointing_game"][0].
        columns = ratios | _scores(relevance, evidence, regions)
        is_text = first.grid is None and "input_ids" in batch
        # [batch, tokens], padded to the longest text of the batch; -1 where a token is no content.
        content_ids = torch.where(content_tokens(batch), batch["input_ids"], -1).cpu().numpy() if is_text else None
        labels = self._labels(batch, probabilities)
        predicted = first.logits.argmax(1).tolist()
        chance = evidence.chance.tolist() if evidence is not None else [float("nan")] * len(samples)
        present = evidence.present.tolist() if evidence is not None else []
        areas = {name: region.chance.tolist() for name, region in regions.items()}
        maps = {target: explained.scores.detach().cpu().double() for target, explained in relevance.items()}
        for i, sample in enumerate(samples):
            length = len(sample.tensors["input_ids"]) if is_text else None  # padding is cut off again
            yield ExplainedSample(
                sample=sample,
                predicted=predicted[i],
                probabilities=probabilities[i],
                maps={target: scores[i, :length] for target, scores in maps.items()},
                grid=grid,
                num_logits=first.logits.shape[1],
                chance=chance[i],
                values={name: column[i] for name, column in columns.items()},
                annotated=(evidence.evidence[i, :length] > 0).cpu().numpy()
                if evidence is not None and present[i]
                else None,
                areas={name: column[i] for name, column in areas.items()},
                content_ids=content_ids[i, :length] if content_ids is not None else None,
                method=first.method,
                are_rows=are_rows,
                class_maps={target: row[:length] for target, row in class_maps[i].items()},
                labels=labels[i],
            )

    def _explain(
        self, recording: Recording | None, inputs: Tensor | dict[str, Any], samples: Sequence[Sample]
    ) -> dict[str, Relevance]:
        """Return the relevance by target; of several labels, that of the sum of the logits, signed by the answers."""
        options = self.config.method_options
        if recording is not None and self.config.meaning.has_labels:
            return {"predicted": _of_all_answers(recording, self.method, options)}
        explain = explained_argument(inputs)
        model = self.model if recording is None else recording.model
        explained = recording.attribute if recording else partial(attribute, model, inputs, explain=explain)
        if "label" not in self.config.targets or any(sample.label < 0 for sample in samples):
            return {"predicted": explained(None, self.method, **options)}
        labels = torch.tensor([sample.label for sample in samples], device=self.device)
        for_label = explained(labels, self.method, **options)
        if "predicted" not in self.config.targets:
            return {"label": for_label}
        # Where both classes are the same, so are the maps. With labels [3, 5, 5] and predictions [3, 5, 1] only the
        # last sample is explained again, and a good model's second target costs next to nothing.
        predicted = for_label.logits.argmax(1)
        misread = (predicted != labels).nonzero().flatten()
        scores = for_label.scores
        # A recording costs half as much as a walk back: fewer samples cost less in one of their own than a walk of all.
        if recording is not None and 2 * len(misread) >= len(samples):
            again = recording.attribute(predicted, for_label.method, **options).scores
            scores = torch.where((predicted != labels)[:, None], again, scores)
        elif len(misread):
            some = inputs[misread] if isinstance(inputs, Tensor) else samples_of(inputs, misread)
            again = attribute(model, some, predicted[misread], for_label.method, explain=explain, **options).scores
            scores = scores.index_copy(0, misread, again)
        for_predicted = Relevance(scores, for_label.logits, predicted, for_label.method, for_label.grid)
        return {"label": for_label, "predicted": for_predicted}

    def _labels(
        self, batch: Mapping[str, Tensor], probabilities: Float[np.ndarray, "batch labels"]
    ) -> Int[np.ndarray, "batch labels"] | Sequence[None]:
        if not self.config.meaning.has_labels:
            return [None] * len(probabilities)
        labels: Int[np.ndarray, "batch labels"] = (
            batch[LABELS].cpu().numpy() if LABELS in batch else np.full(probabilities.shape, NO_LABEL)
        )
        if labels.shape != probabilities.shape:
            raise ValueError(f"'label' has {labels.shape[1]} columns, and the model {probabilities.shape[1]} logits")
        return labels

    def _explain_classes(
        self,
        recording: Recording | None,
        relevance: Mapping[str, Relevance],
        probabilities: Float[np.ndarray, "batch classes"],
        num_classes: int,
    ) -> list[dict[int, Tensor]]:
        """Return for each sample the maps of its most probable classes that have none yet, by class."""
        first = _first(relevance)
        none: list[dict[int, Tensor]] = [{} for _ in first.logits]
        if recording is None or not self._explains_classes(first.method, first.logits.shape[1], num_classes):
            return none
        explained = list(zip(*(each.target.tolist() for each in relevance.values()), strict=True))
        if self.config.meaning.has_labels:  # the map of all answers is that of none
            explained = [()] * len(explained)
        classes = unexplained_classes(probabilities, explained, num_classes)
        try:
            return explain_classes(recording, classes, first.method, self.config.method_options)
        except Exception:  # a map that is only shown costs no score: `class_maps_of` tries again, and says why
            logger.debug("the maps of further classes could not be computed", exc_info=True)
            return none


def _of_all_answers(recording: Recording, method: str | None, options: Mapping[str, Any]) -> Relevance:
    logits = recording.logits.detach()
    signs = torch.where(logits > 0, 1.0, -1.0).to(logits)
    found = recording.attribute(of_all_labels(signs), method, **options)
    return Relevance(found.scores, logits, logits.argmax(1), found.method, found.grid)


def _batches(samples: Sequence[Sample], size: int, drawn: Collection[int | str]) -> Iterator[Sequence[Sample]]:
    """Yield batches of samples: those with a label apart from those without, and of each those that are drawn apart."""
    for labelled in (True, False):
        # Apart, for a batch has one list of targets: its maps are for labels, or for predicted classes alone; and a
        # walk for a further class is one of the whole batch.
        alike = [sample for sample in samples if (sample.label >= 0) == labelled]
        first = [sample for sample in alike if sample.sample_id in drawn]
        others = [sample for sample in alike if sample.sample_id not in drawn]
        for part in (first, others):
            yield from ([part[index] for index in indices] for indices in by_size(part, size))


def _are_rows(batch: Mapping[str, Any], relevance: Relevance) -> bool:
    """Return whether the tokens are the rows of the input, also where these are patches of a grid."""
    if not has_rows(batch) or relevance.scores.shape[1] != rows_in(batch).shape[1]:
        return False
    return relevance.grid is None or grid_sizes(batch) is not None


def _mixing_ratios(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Return each sample's mean mixing ratio behind every block, over its tokens, in [0, 1] (Kobayashi et al. 2021)."""
    (ratios,) = decompose(model, model_inputs(model, batch), "atb").mixing_ratios.values()  # [blocks, batch, tokens]
    mask = batch.get("attention_mask")
    weights = torch.ones_like(ratios[0]) if mask is None else mask.to(ratios.dtype)
    means = (ratios * weights).sum(-1) / weights.sum(-1)
    return {f"mixing/block_{number}": row.tolist() for number, row in enumerate(means)}


def _scores(
    relevance: Mapping[str, Relevance], evidence: TokenAnnotation | None, regions: Mapping[str, TokenAnnotation]
) -> dict[str, list[float]]:
    """Return the scores of every sample by "<target>/<measure>"; none without an annotation."""
    columns: dict[str, list[float]] = {}
    for target, explained in relevance.items():
        scores = explained.scores.double()
        if evidence is not None:
            columns |= {f"{target}/{name}": measure(scores, evidence).tolist() for name, measure in MEASURES.items()}
        for name, region in regions.items():
            columns[f"{target}/region/{name}"] = energy_pointing_game(scores, region).tolist()
    return columns


def _first(relevance: Mapping[str, Relevance]) -> Relevance:
    """Return the relevance for the first target; logits and grid are the same for all."""
    return next(iter(relevance.values()))
