"""The samples of one evaluation, each with its prediction, its relevance maps and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample
from lrptrain.batch.sizes import is_series
from lrptrain.batch.task import MASKS

UNKNOWN = "?"


@dataclass(frozen=True)
class ExplainedSample:
    """A sample with its prediction, its relevance maps and their scores.

    Attributes:
        sample: The sample; its tensors may be left out.
        probabilities: The probabilities of all classes, of both classes of a single logit, or of each label.
        maps: Relevance by target, "label" or "predicted", `[tokens]`, on the CPU.
        grid: Rows and columns of the patches, of a volume its slices before them; None for a text, and for rows.
        chance: The annotated share of the area, in [0, 1]; nan without an annotation.
        values: Scores by "<target>/<measure>"; nan where a score is undefined.
        annotated: True at tokens that hold any evidence; None without an annotation.
        content_ids: The token ids of a text, -1 where a token is no content; None for an image.
        are_rows: Whether the tokens are rows of numbers, such as the instances of a bag.
        labels: Of several labels, 1 for each that it has, 0 for others, -1 where it is not known; else None.
    """

    sample: Sample
    predicted: int
    probabilities: Float[np.ndarray, " classes"]
    maps: dict[str, Float[Tensor, " tokens"]]
    grid: tuple[int, ...] | None
    num_logits: int
    chance: float
    values: dict[str, float]
    annotated: Bool[np.ndarray, " tokens"] | None = None
    areas: dict[str, float] = field(default_factory=dict)
    content_ids: Int[np.ndarray, " tokens"] | None = None
    method: str = ""
    are_rows: bool = False
    class_maps: dict[int, Float[Tensor, " tokens"]] = field(default_factory=dict)
    labels: Int[np.ndarray, " labels"] | None = None

    @property
    def probability(self) -> float:
        """The probability of the predicted class; of several labels, the mean of those of their answers."""
        if self.labels is None:
            return float(self.probabilities.max())
        return float(np.maximum(self.probabilities, 1 - self.probabilities).mean())

    @property
    def is_right(self) -> Bool[np.ndarray, " known"]:
        """Whether the answer is the label, one entry for each label that is known."""
        if self.labels is None:
            return np.array([self.predicted == self.sample.label] if self.sample.label >= 0 else [], bool)
        known = self.labels >= 0
        return (self.probabilities > 0.5)[known] == self.labels[known]

    def label_in(self, class_names: Sequence[str]) -> str:
        """Return what it is, or which labels it has; `?` where that is not known."""
        if self.labels is None:
            return class_name(self.sample.label, class_names)
        return _joined(self.labels > 0, class_names) if (self.labels >= 0).any() else UNKNOWN

    def answer_in(self, class_names: Sequence[str]) -> str:
        """Return what the model answers."""
        if self.labels is None:
            return class_name(self.predicted, class_names)
        return _joined(self.probabilities > 0.5, class_names)

    def of(self, label: int) -> "ExplainedSample":
        """Return the sample as a model of one of its several labels alone would answer it."""
        assert self.labels is not None
        yes = float(self.probabilities[label])
        return replace(
            self,
            sample=replace(self.sample, label=int(self.labels[label])),
            predicted=int(yes > 0.5),
            probabilities=np.array([1 - yes, yes]),
            num_logits=2,
            labels=None,
        )

    @property
    def maps_by_class(self) -> dict[int, Float[Tensor, " tokens"]]:
        """All maps for a class; that of all answers of a model of several labels is none of these."""
        if self.labels is not None:
            return self.class_maps
        classes = {"label": self.sample.label, "predicted": self.predicted}
        return {classes[target]: values for target, values in self.maps.items()} | self.class_maps

    @property
    def map_of_answer(self) -> Float[Tensor, " tokens"]:
        """The map for the predicted class, or else for the label."""
        return self.maps[max(self.maps)]

    @property
    def positive_relevance(self) -> Float[np.ndarray, " tokens"]:
        """The positive part of the map for the first target, the label where there is one; 0 where it is nan."""
        first = self.maps[min(self.maps)]
        return np.nan_to_num(np.maximum(first.numpy(), 0.0))


@dataclass(frozen=True)
class Evaluation:
    """All explained samples of one evaluation.

    Attributes:
        samples: The explained samples; without tensors where several processes share the work.
        inputs: The same samples with inputs and annotations, in the same order, if cues will be tested; else None.
    """

    samples: Sequence[ExplainedSample]
    inputs: Sequence[Sample] | None = None
    epoch: int = 0
    step: int = 0

    @property
    def medium(self) -> Literal["image", "text", "volume", "series", "rows", ""]:
        """What the samples are; "" for what is none of these, such as a table."""
        if all(explained.content_ids is not None for explained in self.samples):
            return "text"
        if all(explained.are_rows for explained in self.samples):
            return "rows"
        if any(explained.grid is None for explained in self.samples):
            return "series" if self.inputs and all(map(is_series, self.inputs)) else ""
        return "image" if all(len(explained.grid or ()) == 2 for explained in self.samples) else "volume"

    def of(self, label: int | None) -> "Evaluation":
        """Return the samples as a model of one of several labels alone would answer them; as they are for None."""
        if label is None:
            return self
        inputs = None if self.inputs is None else [_of_label(each, label) for each in self.inputs]
        return replace(self, samples=[each.of(label) for each in self.samples], inputs=inputs)

    @property
    def num_labels(self) -> int:
        """The number of labels of each sample, 0 where it has one class."""
        labels = self.samples[0].labels if self.samples else None
        return 0 if labels is None else len(labels)

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """The label of each sample, -1 without one."""
        return np.array([explained.sample.label for explained in self.samples])

    @property
    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        """The probabilities of each."""
        return np.stack([explained.probabilities for explained in self.samples])

    @property
    def said(self) -> Int[np.ndarray, " n *labels"]:
        """The class that the model answers to each; of several labels, whether it says yes to each of them."""
        return self.answers if not self.num_labels else (self.probabilities > 0.5).astype(int)

    @property
    def answers(self) -> Int[np.ndarray, " n"]:
        """The class that the model answers to each."""
        return self.probabilities.argmax(1)


def _of_label(sample: Sample, label: int) -> Sample:
    """Return a sample with the mask of one of its labels, where each has its own."""
    if MASKS not in sample.tensors:
        return sample
    rest = {name: x for name, x in sample.tensors.items() if name != MASKS}
    return replace(sample, tensors={**rest, "mask": sample.tensors[MASKS][label]})


def class_name(label: int, class_names: Sequence[str]) -> str:
    """Return the name of a class, `?` without a label."""
    return UNKNOWN if label < 0 else class_names[label]


def _joined(has: Bool[np.ndarray, " labels"], class_names: Sequence[str]) -> str:
    return ", ".join(class_names[number] for number in np.flatnonzero(has).tolist()) or "none"
