"""The samples of one evaluation, each with its prediction, its relevance maps and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample


@dataclass(frozen=True)
class ExplainedSample:
    """A sample with its prediction, its relevance maps and their scores.

    Attributes:
        sample: The sample; its tensors may be left out.
        predicted: The class with the largest logit.
        probabilities: The probabilities of all classes; of a single logit, those of the two classes it decides between.
        maps: Relevance by target, "label" or "predicted", `[tokens]`, on the CPU.
        grid: Rows and columns of the patches, of a volume its slices before them; None for a text, and for rows.
        num_logits: The number of the model's logits.
        chance: The annotated share of the area, in [0, 1]; nan without an annotation.
        values: Scores by "<target>/<measure>"; nan where a score is undefined.
        annotated: True at tokens that hold any evidence; None without an annotation.
        areas: The share of the area, in [0, 1], of every named region.
        content_ids: The token ids of a text, -1 where a token is no content; None for an image.
        method: The method of the maps.
        are_rows: Whether the tokens are rows of numbers, such as the instances of a bag.
        class_maps: Relevance for further classes, by class.
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

    @property
    def probability(self) -> float:
        """The probability of the predicted class."""
        return float(self.probabilities.max())

    @property
    def map_of_answer(self) -> Float[Tensor, " tokens"]:
        """The map for the predicted class, or else for the label."""
        return self.maps[max(self.maps)]

    @property
    def positive_relevance(self) -> Float[np.ndarray, " tokens"]:
        """The positive part of the map for the first target, the label where there is one; 0 where it is nan."""
        first = self.maps[min(self.maps)]
        positive: Float[np.ndarray, " tokens"] = np.nan_to_num(np.maximum(first.numpy(), 0.0))
        return positive


@dataclass(frozen=True)
class Evaluation:
    """All explained samples of one evaluation.

    Attributes:
        samples: The explained samples; without tensors where several processes share the work.
        inputs: The same samples with inputs and annotations, in the same order, if cues will be tested; else None.
        epoch: The number of the epoch.
        step: The global step.
    """

    samples: Sequence[ExplainedSample]
    inputs: Sequence[Sample] | None = None
    epoch: int = 0
    step: int = 0

    @property
    def medium(self) -> Literal["image", "text", "volume", "rows", ""]:
        """What the samples are; "" for what is none of these, such as a waveform."""
        if all(explained.content_ids is not None for explained in self.samples):
            return "text"
        if all(explained.are_rows for explained in self.samples):
            return "rows"
        if any(explained.grid is None for explained in self.samples):
            return ""
        return "image" if all(len(explained.grid or ()) == 2 for explained in self.samples) else "volume"

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """The label of each sample, -1 without one."""
        return np.array([explained.sample.label for explained in self.samples])

    @property
    def probabilities(self) -> Float[np.ndarray, "n classes"]:
        """The probabilities of each."""
        return np.stack([explained.probabilities for explained in self.samples])

    @property
    def answers(self) -> Int[np.ndarray, " n"]:
        """The class that the model answers to each."""
        answers: Int[np.ndarray, " n"] = self.probabilities.argmax(1)
        return answers
