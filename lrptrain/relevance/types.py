"""The record that attribution returns, the layout of a model's tokens, handles of registrations, and the errors."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.shown.explained_batch import ExplainedBatch
from lrptrain.terminal import WrappedWarning


class UnsupportedOperationError(NotImplementedError):
    """The model's forward pass contains an operation through which relevance cannot be passed."""


class UnsupportedModelError(ValueError):
    """The model, or what it returns, lacks something that the method needs."""


class UnsupportedMethodError(ValueError):
    """The method is unknown, or does not exist for this kind of model."""


class NonFiniteError(ValueError):
    """Relevance, or the logits that it explains, hold NaN or infinity."""


class RelevanceWarning(WrappedWarning):
    """A map was made, but something about it has to be known before it is read.

    Such as a method taken in place of the default one, or a model in train mode. `lrptrain.relevance.notices` says it
    once per model.
    """


@dataclass(frozen=True)
class TokenLayout:
    """Where a model's content tokens stand in its sequence.

    Attributes:
        length: Number of tokens in the sequence, prefix tokens included.
        positions: Index in the sequence of every content token, in reading order (row by row for patches).
        grid: Tokens as (rows, columns) for images, (frames, rows, columns) for videos, None for what has no grid.
    """

    length: int
    positions: tuple[int, ...]
    grid: tuple[int, ...] | None = None

    def content(self, values: Float[Tensor, "*batch length"]) -> Float[Tensor, "*batch tokens"]:
        """Keep the content tokens of the last axis, in reading order."""
        return values[..., list(self.positions)]


@dataclass(frozen=True, repr=False)
class Relevance:
    """Relevance of every token for one class of every sample.

    In a notebook it shows itself as the last line of a cell; `show` and `save` do so anywhere.

    Attributes:
        scores: One number per token in reading order: per patch, tube of a video, frame of a waveform or position of a
            text; no prefix tokens, 0 at padding.
        logits: The model's output of the forward pass that was recorded, in its precision (see `lrptrain.attribute`).
        target: The explained class of every sample.
        method: Name of the method.
        grid: Tokens as (rows, columns) for images, (frames, rows, columns) for videos, (frequency, time) for
            spectrograms that the model cuts in both, None for texts, waveforms and sequences.
        input: Relevance of the input itself where the method reaches it, of its shape without channels: `[batch,
            height, width]` of images; `[batch, tokens, width]` of word embeddings. `scores` is its sum per token.
        other: The class that the target was compared with, or None.
        attention: On request, per block the relevance at the attention probabilities, `[batch, heads, length, length]`.
        convergence_delta: Of `integrated_gradients`, the sum of relevance minus the difference of the logits of input
            and baseline, 0 after enough steps; None for other methods, and with `create_graph`.
        batch: What it is shown with: the input, as long as the caller has it, and names; None with `create_graph`.
    """

    scores: Float[Tensor, "batch tokens"]
    logits: Float[Tensor, "batch classes"]
    target: Int[Tensor, " batch"]
    method: str
    grid: tuple[int, ...] | None = None
    input: Float[Tensor, " batch *places"] | None = None
    attention: tuple[Float[Tensor, "batch heads length length"], ...] | None = None
    other: Int[Tensor, " batch"] | None = None
    convergence_delta: Float[Tensor, " batch"] | None = None
    batch: ExplainedBatch | None = field(default=None, compare=False)

    def show(
        self,
        inputs: Any = None,
        *,
        tokenizer: Any = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        multi_label: bool | None = None,
        max_samples: int = 16,
    ) -> None:
        """Show each sample with its map: in a notebook as pictures and coloured words, in a terminal by its colours.

        Red speaks for the class, blue against it; a word has the sum of its pieces. Logits are shown as probabilities
        where a Hugging Face configuration or `multi_label` says how.

        Args:
            inputs: The images or token ids that the model was given, where the caller has not kept them.
            tokenizer: Names the tokens of a text: one of transformers or tokenizers.
            class_names: Name of each class, in the order of the logits or by number; else those of the model.
            mean: Mean of each channel that the images were normalised with; without it images are stretched.
            std: Their standard deviation.
            multi_label: True: each logit has a label of its own (sigmoid); False: classes exclude each other (softmax).
            max_samples: Most samples that are shown, from 1 on.

        Raises:
            ValueError: If the inputs are not what was explained, the class names do not fit, or nothing is to be shown.
            TypeError: If the tokenizer cannot name tokens, or the inputs make no tensor.
        """
        from lrptrain.relevance.shown import showing  # which needs what draws; a map itself does not

        views = showing.views(self, inputs, tokenizer, class_names, mean, std, multi_label, max_samples)
        note = showing.not_shown(self, max_samples) if inputs is None else ""
        text = showing.views_text(views, note, colored=showing.takes_color())
        showing.display(showing.views_html(views, note), text)

    def save(
        self,
        path: str | Path,
        inputs: Any = None,
        *,
        tokenizer: Any = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        multi_label: bool | None = None,
        max_samples: int = 16,
        width: int | None = None,
    ) -> None:
        """Save what `show` shows: `map.png`, or `map.html`, which holds its pictures; or as numbers, `map.json`.

        JSON has the `method`, the `grid`, and of each sample its `target`, `scores`, and of a text the `words`.

        Args:
            path: The file, which ends in .html, .png or .json.
            inputs: As for `show`.
            tokenizer: As for `show`.
            class_names: As for `show`.
            mean: As for `show`.
            std: As for `show`.
            multi_label: As for `show`.
            max_samples: As for `show`.
            width: Of each picture, in pixels; None for an image beside its map as they are, and 720 for a text.

        Raises:
            ValueError: As `show`, if the file ends in anything else, or the width is none of a picture with its scale.
            TypeError: As `show`.
            ImportError: If a PNG is to be made without pillow.
        """
        from lrptrain.relevance.shown import showing

        views = showing.views(self, inputs, tokenizer, class_names, mean, std, multi_label, max_samples)
        if Path(path).suffix.lower() == ".json":
            Path(path).write_text(json.dumps(showing.plain(self, views)), encoding="utf-8")
        else:
            showing.save_views(views, path, width)

    def _repr_html_(self) -> str:
        from lrptrain.relevance.shown import showing

        return showing.views_html(showing.views(self), showing.not_shown(self, 16))

    def __repr__(self) -> str:
        from lrptrain.relevance.shown import showing

        return showing.described(self)

    @property
    def image_grid(self) -> tuple[int, int] | None:
        """The grid as (rows, columns), for what works on images; None where there is none.

        Raises:
            ValueError: If the relevance is of a video.
        """
        if self.grid is None:
            return None
        if len(self.grid) != 2:
            raise ValueError(
                f"the grid {self.grid} is of a video, and images are needed: take a model of single frames, or explain "
                "videos by lrptrain.attribute, whose .scores.unflatten(1, grid) has a map for each frame"
            )
        return self.grid[0], self.grid[1]

    def to_image(self, size: int | tuple[int, int]) -> Float[Tensor, "batch *frames height width"]:
        """Up-sample the patch scores to an image, bilinearly; those of a video to one image per frame of its grid.

        Args:
            size: (height, width) in pixels, or one number for a square.

        Raises:
            ValueError: If the relevance is of a text or a waveform, which have no grid.
        """
        if self.grid is None:
            raise ValueError(
                "to_image needs relevance with a grid, as images and videos have it; a text or a waveform has one "
                "score per token and no grid: take .scores"
            )
        height, width = (size, size) if isinstance(size, int) else size
        maps = self.scores.reshape(-1, 1, *self.grid[-2:])
        images = torch.nn.functional.interpolate(maps, (height, width), mode="bilinear", align_corners=False)
        return images.view(len(self.scores), *self.grid[:-2], height, width)


class Registration(ABC):
    """The handle of something registered for the process: `remove()` forgets it, and so does the end of a `with`."""

    @abstractmethod
    def remove(self) -> None:
        """Forget it. Removing it twice does nothing."""

    def __enter__(self) -> Self:
        """Keep it until the end of the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Forget it."""
        self.remove()


LISTED = 40
"""How many names a message about an unknown one lists."""


def unknown_name(what: str, name: str, existing: Sequence[str]) -> str:
    """Return the message for an unknown name, with those that are close to it."""
    near = get_close_matches(name, existing, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    more = ", ..." if len(existing) > LISTED else ""
    return f"unknown {what} {name!r}; {hint}known are {', '.join(existing[:LISTED]) or 'none'}{more}"
