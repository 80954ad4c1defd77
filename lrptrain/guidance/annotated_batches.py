"""Read the batches of a training: which samples are guided, and where their evidence is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lrptrain.batch import BatchAdapter, read_batch
from lrptrain.batch.annotations import IGNORED, NO_CONTENT
from lrptrain.batch.call import ARGUMENT, IMAGES, TEXTS, entry_of
from lrptrain.batch.checks import Limits, unusable
from lrptrain.batch.chunks import flattened
from lrptrain.batch.content import SPECIAL, content_tokens, ends_of_texts, special_tokens
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.task import LABELS
from lrptrain.cues.annotator import Annotate, Annotator
from lrptrain.cues.texts import UNNAMED, Language
from lrptrain.guidance.evidence import (
    everything,
    evidence,
    guidable_samples,
    in_annotated_fraction,
    without_annotation,
)
from lrptrain.guidance.objective import Objective
from lrptrain.guidance.strength import IDLE_STEPS
from lrptrain.relevance.types import unknown_name
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import Failures


class AnnotatedBatches:
    """Reads one batch after another, and counts the samples that cannot be used.

    Args:
        objective: Says whether a sample needs a label and an annotation to be guided. Where it needs no annotation, all
            samples are guided, and annotations are not read.
        sparse: Whether batches without any annotation are to be expected, rather than an error.
        annotated_fraction: The fraction of the samples whose annotations are used.
        max_samples: The most samples of a batch that are guided; None for all.
        batch_adapter: Brings a batch of another form to the contract's names.
        seed: The seed of the draw of the fraction.
        failed: Counts batches that cannot be read.
        annotate: Makes the annotations, where batches hold none; None for those of the batches.
        explain: The argument that is explained, where the model takes several; None for the input of the batch.

    Attributes:
        language: How texts are made up; None before the first ones.
        left_out: How often a sample went unguided for its values.
    """

    left_out: int
    _png_masks: PngMasks

    def __init__(
        self,
        objective: Objective,
        sparse: bool,
        annotated_fraction: float,
        max_samples: int | None,
        batch_adapter: BatchAdapter | None,
        seed: int,
        failed: Failures,
        annotate: Annotate | None = None,
        explain: str | None = None,
    ) -> None:
        self.objective = objective
        self.sparse = sparse
        self.annotated_fraction = annotated_fraction
        self.max_samples = max_samples
        self.batch_adapter = batch_adapter
        self.seed = seed
        self.failed = failed
        self.explain = explain
        self.annotator = None if annotate is None else Annotator(annotate)
        self.start_over()

    def start_over(self) -> None:
        """Forget the batches of an earlier training."""
        self.left_out = self._unguided = 0
        self.language: Language | None = None
        self._ends: list[set[int]] = []
        self._png_masks = PngMasks()

    def read(self, batch: Any, worked: bool, learn: Callable[[], Language] = UNNAMED) -> tuple[dict[str, Any], Tensor]:
        """Return a batch in the contract's form, with its evidence, and the indices of the samples to guide.

        Args:
            batch: The batch, as the user's step gets it.
            worked: Whether an earlier batch was guided: then an error is that of a single batch, which goes unguided.
            learn: Finds out how texts are made up, once.

        Raises:
            ValueError: If no batch has worked yet, and this one cannot be used.
        """
        try:
            columns = self._columns(batch)
            if "input_ids" in columns:
                columns[SPECIAL] = self._special(columns, learn)
            self.objective.swap.check_medium(columns)
            needs_annotation = self.objective.needs_annotation
            # What a monitor finds later may go by annotations: those that there are must fit from the first batch on.
            if not needs_annotation and self.objective.swap.followed is None:
                columns = {name: x for name, x in columns.items() if name not in ANNOTATIONS}
            elif self.annotator is not None:
                columns = self.annotator(columns, self.language)
            is_annotated = bool(columns.keys() & set(ANNOTATIONS))
            if (needs_annotation and not is_annotated and (self.sparse or worked)) or (
                worked and self.objective.is_idle
            ):
                return columns, _none()
            self._png_masks.add(columns)
            if self._png_masks.problem:
                raise ValueError(self._png_masks.problem)
            problems = self._problems(columns, worked)
            columns = without_annotation(columns, problems) if problems else columns
            columns["evidence"] = evidence(columns) if needs_annotation or is_annotated else everything(columns)
            columns["evidence"][list(problems)] = IGNORED
            guidable = guidable_samples(columns, self.objective.needs_label)
            self._unguided += not guidable.any()
            # One bag may well be one that nobody marked, and a batch be empty; many are a mistake.
            is_too_early = len(guidable) < 2 and self._unguided < IDLE_STEPS
            if not (guidable.any() or worked or self.sparse or is_too_early):
                raise ValueError(
                    "no sample of the first guided batch has an annotation (all are 255, ignored) and a label; if only "
                    "some samples have one, say so with sparse=True"
                )
            if is_annotated and not worked and "rationale" in columns and "input_ids" in columns:
                is_marked = columns["evidence"][guidable] == 1
                # Of one text alone nobody may know whether its ends are words.
                if len(is_marked) > 1 and is_marked.any() and not (is_marked & content_tokens(columns)[guidable]).any():
                    raise ValueError(f"'rationale' of the first guided batch {NO_CONTENT}")
            if self.annotated_fraction < 1:
                guidable &= in_annotated_fraction(columns, self.annotated_fraction, self.seed).to(guidable.device)
            return columns, torch.nonzero(guidable).flatten()[: self.max_samples]
        except Exception as error:
            if not worked:
                raise
            self.failed.note("reading a batch", error)
            return {}, _none()

    def _special(self, columns: dict[str, Any], learn: Callable[[], Language]) -> Tensor:
        """Return which tokens of texts are special, by the ends of all texts so far where no tokenizer says so."""
        self.language = self.language or learn()
        texts = flattened(columns)
        form, ends = self.language.form, ends_of_texts(texts)
        self._ends = [before | found for before, found in zip(self._ends or ends, ends, strict=True)]
        return special_tokens(texts, form.ends, form.padding.token, self._ends).view_as(columns["input_ids"])

    def _columns(self, batch: Any) -> dict[str, Any]:
        """Return a batch in the contract's form, with all of several labels as its label."""
        columns = self._named(batch)
        return columns | ({"label": columns.pop(LABELS)} if LABELS in columns else {})

    def _named(self, batch: Any) -> dict[str, Any]:
        """Return a batch in the contract's form, in which what is explained is the input.

        A step may give the model what a batch calls by another name: then the input is what the contract says.
        """
        task, explain = self.objective.task, self.explain
        if explain is not None:
            columns = read_batch(batch, self.batch_adapter, task, needs_input=False)
            plain = {name.removeprefix(ARGUMENT): x for name, x in columns.items()}
            named = plain.get(explain)
            has_input = any(name in plain for name in (*IMAGES, "input_ids"))
            if (named is None and not has_input) or (isinstance(named, Tensor) and named.ndim < 2):
                known = [name for name, x in plain.items() if isinstance(x, Tensor) and x.ndim > 1]
                names = [name for name in known if name not in (*ANNOTATIONS, "label")]
                raise ValueError(f"explain= names an input of the batch: {unknown_name('input', explain, names)}")
            if named is not None:
                entry = entry_of(columns, explain, plain[explain])
                beside = TEXTS[1:] if entry == "input_ids" else ()
                inputs = {entry: plain[explain], **{name: plain[name] for name in beside if name in plain}}
                return {**{name: x for name, x in columns.items() if name not in (*IMAGES, *TEXTS, explain)}, **inputs}
        return read_batch(batch, self.batch_adapter, task)

    def _problems(self, columns: dict[str, Any], worked: bool) -> dict[int, str]:
        """Return what is wrong with samples whose values cannot be used, by their row; name the first of them.

        Raises:
            ValueError: If no batch has worked yet.
        """
        problems = unusable(columns, Limits())
        for row, problem in problems.items():
            name = f"the sample {columns['sample_id'][row]}" if "sample_id" in columns else f"sample {row} of a batch"
            if not worked or self.failed.on_error == "raise":
                raise ValueError(f"{self.failed.callback} cannot use {name}: {problem}")
            if not self.left_out:
                give_warning(
                    f"{self.failed.callback} leaves out {name}: {problem}. This is said once; `guidance/left_out` "
                    "counts",
                )
            self.left_out += 1
        return problems


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.long)
