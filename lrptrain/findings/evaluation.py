"""What detectors read: the samples of one evaluation, each with its prediction, its relevance maps and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample
from lrptrain.findings.layout import are_laid_out_alike

if TYPE_CHECKING:
    from lrptrain.findings.extent import MarkedPatches
    from lrptrain.findings.figures import PlainGround


@dataclass(frozen=True)
class ExplainedSample:
    """A sample with its prediction, its relevance maps and their scores.

    Attributes:
        sample: The sample; its tensors may be left out.
        predicted: The class with the largest logit.
        probabilities: The probabilities of all classes; of a single logit, those of the two classes it decides between.
        maps: Relevance by target, "label" or "predicted", `[tokens]`, on the CPU.
        grid: Rows and columns of the patches; None for a text.
        num_logits: The number of the model's logits.
        chance: The annotated share of the area, in [0, 1]; nan without an annotation.
        values: Scores by "<target>/<measure>"; nan where a score is undefined.
        annotated: True at tokens that hold any evidence; None without an annotation.
        areas: The share of the area, in [0, 1], of every named region.
        content_ids: The token ids of a text, -1 where a token is no content; None for an image.
        method: The name of the method that made the maps; "" where it is not known.
        class_maps: Relevance for further classes, by class, of a sample that is drawn.
    """

    sample: Sample
    predicted: int
    probabilities: Float[np.ndarray, " classes"]
    maps: dict[str, Float[Tensor, " tokens"]]
    grid: tuple[int, int] | None
    num_logits: int
    chance: float
    values: dict[str, float]
    annotated: Bool[np.ndarray, " tokens"] | None = None
    areas: dict[str, float] = field(default_factory=dict)
    content_ids: Int[np.ndarray, " tokens"] | None = None
    method: str = ""
    class_maps: dict[int, Float[Tensor, " tokens"]] = field(default_factory=dict)

    @property
    def probability(self) -> float:
        """The probability of the predicted class."""
        return float(self.probabilities.max())

    @property
    def label_or_predicted(self) -> int:
        """The label, or the predicted class of a sample without one."""
        return self.sample.label if self.sample.label >= 0 else self.predicted

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
        inputs: The same samples with inputs and annotations, in the same order, if an intervention will follow; else
            None.
        epoch: The number of the epoch.
        step: The global step.
        token_vectors: The model's embedding of the tokens of its texts, by token id; empty where it has none.
    """

    samples: Sequence[ExplainedSample]
    inputs: Sequence[Sample] | None = None
    epoch: int = 0
    step: int = 0
    token_vectors: Mapping[int, Float[np.ndarray, " width"]] = field(default_factory=dict)

    @property
    def targets(self) -> list[str]:
        """The explained targets, "label" first; samples without a label lack that one."""
        # The alphabet has the order that is wanted: label, predicted.
        return sorted({target for explained in self.samples for target in explained.maps})

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the patches that all maps have in common; None for texts and for images that differ."""
        grids = {explained.grid for explained in self.samples}
        return grids.pop() if len(grids) == 1 else None

    @cached_property
    def plain_ground(self) -> "PlainGround | None":
        """The ground and the figures of the images; None where it is not plain, of texts and without inputs."""
        # Not imported above: reading a record needs no images, and these load the parts that intervene on models.
        figures = import_module("lrptrain.findings.figures")
        ground: PlainGround | None = figures.plain_ground(self._images)
        return ground

    @cached_property
    def marked_patches(self) -> "MarkedPatches | None":
        """Where images hold marks, of which more is asked for where any place may hold objects; None elsewhere."""
        grid = self.grid
        if grid is None or not self.any_place_may_hold_objects:
            return None
        marked: MarkedPatches = import_module("lrptrain.findings.extent").MarkedPatches(self, grid)
        return marked

    @property
    def _images(self) -> list[Tensor]:
        # Without a grid, what is called an image may be a table or a series.
        inputs = () if self.grid is None else self.inputs or ()
        images: list[Tensor] = import_module("lrptrain.intervention.regions").images_of(inputs)
        return images

    @cached_property
    def any_place_may_hold_objects(self) -> bool:
        """Whether images are laid out alike, or show figures on a plain ground.

        There, a class explains what any place holds, and a model that reads an object reads a place.
        """
        images = self._images
        alike = len({image.shape for image in images}) == 1 and are_laid_out_alike(images)
        return alike or self.plain_ground is not None

    @property
    def medium(self) -> Literal["image", "text", ""]:
        """What the samples are; "" for what is neither image nor text, such as a series."""
        if all(explained.content_ids is not None for explained in self.samples):
            return "text"
        return "image" if all(explained.grid is not None for explained in self.samples) else ""

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """The label of each sample, or its predicted class where it has none."""
        return np.array([explained.label_or_predicted for explained in self.samples])

    @property
    def shares(self) -> Float[np.ndarray, "n tokens"]:
        """The positive relevance of every map for the first target, summing to 1; nan where nothing is positive."""
        positive = np.stack([explained.positive_relevance for explained in self.samples])
        total = positive.sum(1, keepdims=True)
        # The inner `where` avoids a division by 0, the outer one gives nan to maps without positive relevance.
        return np.where(total > 0, positive / np.where(total > 0, total, 1), np.nan)
