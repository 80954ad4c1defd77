"""What one evaluation has to say, before any logger hears of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from lrptrain.findings import Finding
from lrptrain.loggers.metrics import LoggedMetric


@dataclass(frozen=True)
class Picture:
    """One image with its relevance.

    Attributes:
        sample_id: Name of the sample.
        caption: One line about it.
        image: The image beside its relevance, with a title and a scale.
        mask: The annotation at the picture's size, 1 evidence, 0 not, 255 ignored; None without one.
    """

    sample_id: int | str
    caption: str
    image: UInt8[np.ndarray, "height width 3"]
    mask: UInt8[np.ndarray, "height width"] | None = None


@dataclass(frozen=True)
class Highlight:
    """One text with its relevance.

    Attributes:
        sample_id: Name of the sample.
        caption: One line about it.
        html: The text highlighted, as `lrptrain.render.token_html` gives it; without the caption.
        text: The same for pages without colour, as `lrptrain.render.token_markdown` gives it.
    """

    sample_id: int | str
    caption: str
    html: str
    text: str


@dataclass(frozen=True)
class Input:
    """What the model was given of one sample: an image or a text.

    Attributes:
        sample_id: Name of the sample.
        grid: Rows and columns of the patches; None of a text.
        image: The pixels of an image, at its own size; None of a text.
        tokens: Tokens of a text, one for each value of its maps; None where it is padding.
        annotation: 1 evidence, 0 not, 255 ignored; of the image's pixels or the tokens. None without one.
        scored: Whether each token of a text is content that is scored, neither special nor padding nor ignored.
    """

    sample_id: int | str
    grid: tuple[int, int] | None = None
    image: UInt8[np.ndarray, "height width 3"] | None = None
    tokens: list[str | None] = field(default_factory=list)
    annotation: UInt8[np.ndarray, " *places"] | None = None
    scored: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class ClassMap:
    """The relevance of one sample for one class.

    Attributes:
        sample_id: Name of the sample.
        class_name: Name of the class that is explained.
        probability: Probability of the class, in [0, 1].
        relevance: One value for each token.
    """

    sample_id: int | str
    class_name: str
    probability: float
    relevance: Float[np.ndarray, " tokens"]


@dataclass(frozen=True)
class EpochRecord:
    """Everything the monitor learned in one evaluation.

    Attributes:
        epoch: Number of the epoch.
        step: Global step as Lightning logs it.
        prefix: What every key starts with: `relevance`, or `relevance/<name>` of a named monitor.
        scalars: Value by key.
        samples: A table by column, one row per sample; `sample_id` is among its columns; each is of one type, or None.
        pictures: Images with their relevance, of an image model.
        texts: Texts with their relevance, of a text model.
        findings: All that stand now.
        new_findings: Those among them that did not stand before.
        class_names: Name of each class.
        inputs: Functions that make what a sample is, by sample id.
        class_maps: Maps of the samples shown for many classes.
        power: `text`, what was tested; `tells`, whether that says anything; `doubt`, why a gate cannot pass all the
            same; and whether the model has `collapsed`.
        metrics: What the scalars are called, and whether higher values are better.
        all_scalars: Whether each logger is to have all scalars.
        weights: Epoch and step of the weights that were evaluated, where they are earlier ones that training keeps.
            (None, None) if no validation was of them.
    """

    epoch: int
    step: int
    scalars: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)
    texts: list[Highlight] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    new_findings: list[Finding] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)
    prefix: str = "relevance"
    inputs: Mapping[int | str, Callable[[], Input]] = field(default_factory=dict)
    class_maps: list[ClassMap] = field(default_factory=list)
    power: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[LoggedMetric] = ()
    all_scalars: bool = False
    weights: tuple[int | None, int | None] | None = None
