"""Read the batches of a training: which samples are guided, and where their evidence is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lrptrain.batch import read_batch
from lrptrain.batch.annotations import IGNORED, NO_CONTENT
from lrptrain.batch.call import ARGUMENT, IMAGES, TEXTS, entry_of
from lrptrain.batch.checks import Limits, unusable
from lrptrain.batch.chunks import flattened
from lrptrain.batch.content import SPECIAL, content_tokens, ends_of_texts, special_tokens
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.batch.task import LABELS
from lrptrain.cues.annotator import Annotator
from lrptrain.cues.texts import UNNAMED, Language
from lrptrain.guidance.evidence import everything, evidence, guidable_samples, without_annotation
from lrptrain.guidance.state import GuidanceState
from lrptrain.guidance.strength import IDLE_STEPS
from lrptrain.relevance.types import unknown_name
from lrptrain.terminal import give_warning


@dataclass(frozen=True)
class AnnotatedBatch:
    """A batch that is guided, perhaps in none of its samples.

    Attributes:
        given: The batch, as the user's step gets it.
        columns: The batch in the contract's form, with its evidence; empty if it cannot be used.
        guided: The indices of the samples to guide.
    """

    given: Any
    columns: dict[str, Any]
    guided: Int[Tensor, " guided"]


class AnnotatedBatches:
    """Makes one batch after another ready to be guided, and counts the samples that cannot be used.

    Where the objective needs no annotation, all samples are guided, and annotations are not looked at.

    Attributes:
        language: How texts are made up; None before the first ones.
    """

    def __init__(self, state: GuidanceState) -> None:
        self._state = state
        self._options = state.options
        self._objective = state.objective
        self._annotator = None if state.options.annotate is None else Annotator(state.options.annotate)
        self.start_over()

    def start_over(self) -> None:
        """Forget the batches of an earlier training."""
        self._unguided = 0
        self.language: Language | None = None
        self._ends: list[set[int]] = []
        self._png_masks = PngMasks()

    def read(self, batch: Any, learn: Callable[[], Language] = UNNAMED) -> AnnotatedBatch:
        """Return a batch in the contract's form, with its evidence, and which samples to guide."""
        try:
            return AnnotatedBatch(batch, *self._read(batch, learn))
        except Exception as error:
            if not self._state.worked:
                raise
            self._state.failed.note("reading a batch", error)
            return AnnotatedBatch(batch, {}, _none())

    def _read(self, batch: Any, learn: Callable[[], Language]) -> tuple[dict[str, Any], Int[Tensor, " guided"]]:
        columns = self._named(batch)
        if LABELS in columns:  # all of several labels
            columns["label"] = columns.pop(LABELS)
        if "input_ids" in columns:
            columns[SPECIAL] = self._special(columns, learn)
        self._objective.swap.check_medium(columns)
        needs_annotation = self._objective.needs_annotation
        # What a monitor finds later may go by annotations: those that there are must fit from the first batch on.
        if not needs_annotation and self._objective.swap.followed is None:
            columns = {name: x for name, x in columns.items() if name not in ANNOTATIONS}
        elif self._annotator is not None:
            columns = self._annotator(columns, self.language)
        is_annotated = bool(columns.keys() & set(ANNOTATIONS))
        worked = self._state.worked
        if needs_annotation and not is_annotated and (self._state.sparse or worked):
            return columns, _none()
        if worked and self._objective.is_idle:
            return columns, _none()
        self._png_masks.add(columns)
        if self._png_masks.problem:
            raise ValueError(self._png_masks.problem)
        problems = self._problems(columns)
        columns = without_annotation(columns, problems) if problems else columns
        columns["evidence"] = evidence(columns) if needs_annotation or is_annotated else everything(columns)
        columns["evidence"][list(problems)] = IGNORED
        guidable = guidable_samples(columns, self._objective.needs_label)
        if not worked:
            self._check_first(columns, guidable, is_annotated)
        return columns, torch.nonzero(guidable).flatten()[: self._options.max_samples]

    def _check_first(self, columns: dict[str, Any], guidable: Bool[Tensor, " batch"], is_annotated: bool) -> None:
        """Reject a batch of which nothing is guided, or whose rationales mark no word, before any was guided."""
        self._unguided += not guidable.any()
        # One bag may well be one that nobody marked, and a batch be empty; many are a mistake.
        is_too_early = len(guidable) < 2 and self._unguided < IDLE_STEPS
        if not (guidable.any() or self._state.sparse or is_too_early):
            raise ValueError(
                "no sample of the first guided batch has an annotation (all are 255, ignored) and a label; if only "
                "some samples have one, say so with sparse=True"
            )
        if is_annotated and "rationale" in columns and "input_ids" in columns:
            is_marked = columns["evidence"][guidable] == 1
            # Of one text alone nobody may know whether its ends are words.
            if len(is_marked) > 1 and is_marked.any() and not (is_marked & content_tokens(columns)[guidable]).any():
                raise ValueError(f"'rationale' of the first guided batch {NO_CONTENT}")

    def _special(self, columns: dict[str, Any], learn: Callable[[], Language]) -> Tensor:
        """Return which tokens of texts are special, by the ends of all texts so far where no tokenizer says so."""
        self.language = self.language or learn()
        texts = flattened(columns)
        form, ends = self.language.form, ends_of_texts(texts)
        self._ends = [before | found for before, found in zip(self._ends or ends, ends, strict=True)]
        return special_tokens(texts, form.ends, form.padding.token, self._ends).view_as(columns["input_ids"])

    def _named(self, batch: Any) -> dict[str, Any]:
        """Return a batch in the contract's form, in which the explained input has its name there."""
        task, explain = self._objective.task, self._options.explain
        if explain is not None:
            columns = read_batch(batch, self._options.batch_adapter, task, needs_input=False)
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
        return read_batch(batch, self._options.batch_adapter, task)

    def _problems(self, columns: dict[str, Any]) -> dict[int, str]:
        """Return what is wrong with samples whose values cannot be used, by their number; name the first of them."""
        problems = unusable(columns, Limits())
        failed = self._state.failed
        for i, problem in problems.items():
            name = f"the sample {columns['sample_id'][i]}" if "sample_id" in columns else f"sample {i} of a batch"
            if not self._state.worked or failed.on_error == "raise":
                raise ValueError(f"{failed.callback} cannot use {name}: {problem}")
            if not self._state.left_out:
                give_warning(
                    f"{failed.callback} leaves out {name}: {problem}. Reported once; `guidance/left_out` counts"
                )
            self._state.left_out += 1
        return problems


def _none() -> Int[Tensor, " guided"]:
    return torch.zeros(0, dtype=torch.long)
