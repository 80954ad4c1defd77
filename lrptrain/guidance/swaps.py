"""What guidance swaps between the samples of a batch: all outside the evidence, or a property of whole samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.intervention.detail import swap_detail
from lrptrain.intervention.edges import swap_edges
from lrptrain.intervention.shading import swap_shading
from lrptrain.intervention.statistics import ValueRange, swap_statistics, value_range
from lrptrain.intervention.swap import outside_evidence, random_donors, swap_surroundings

OUTSIDE = "outside"
FINDINGS = "findings"
"""What users call that which the monitor of the same run has confirmed; see `lrptrain.guidance.named_parts`."""
SwapName = Literal[
    "outside",
    "statistics",
    "outside+statistics",
    "detail",
    "shading",
    "edges",
    "length",
    "punctuation",
    "markers",
    "case",
]


class Swapped(NamedTuple):
    """What a swap makes of a batch.

    Attributes:
        explained: The input of all samples.
        rows: Which of them were swapped.
        arguments: The other arguments of the model that change with it, by name, such as the `attention_mask` of texts
            that have become longer. If there are any, the input may be wider than before.
    """

    explained: Tensor
    rows: Bool[Tensor, " batch"]
    arguments: Mapping[str, Tensor] = MappingProxyType({})

    def arguments_of(self, rows: Int[Tensor, " rows"]) -> dict[str, Tensor]:
        """Return those of some samples."""
        return {name: values[rows.to(values.device)] for name, values in self.arguments.items()}


@dataclass(frozen=True)
class Swap:
    """A kind of swap between the samples of a batch.

    Attributes:
        name: What users call it.
        exchange: Takes the input, the annotation, the margin, the random numbers, whether donors give their
            surroundings alone, the donors, and whether a sample may be its own, as
            `lrptrain.intervention.swap.swap_surroundings` does, and returns as much. One that rewrites texts takes all
            arguments of the model, too, and returns what `Swapped` holds.
        needs_annotation: Whether it goes by where the evidence is.
        rewrites: Whether it may move the tokens of texts, so that no annotation fits them any more.
    """

    name: str
    exchange: Callable[..., tuple[Any, ...]]
    needs_annotation: bool
    rewrites: bool = False

    def __call__(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        margin: int | None = None,
        generator: torch.Generator | None = None,
        without_evidence: bool = False,
        donors: Int[Tensor, " batch"] | None = None,
        itself: bool = False,
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> Swapped:
        """Swap between the samples of a batch.

        Args:
            explained: What the step gives the model: images, token ids or embeddings.
            annotation: 1 evidence, 0 not, 255 ignored; a sample that is all 255 takes no part.
            margin: Pixels or tokens around the evidence that are kept; None for 0.
            generator: The random numbers of the swap.
            without_evidence: Whether donors give their surroundings alone, where it goes by the evidence.
            donors: For every sample the index of its donor; None for random ones.
            itself: Whether a random donor may be the sample itself; of what findings name and of texts' properties it
                may always be.
            arguments: All arguments that the step gives the model, by name.
        """
        more = (arguments,) if self.rewrites else ()
        return Swapped(
            *self.exchange(explained, annotation, margin, generator, without_evidence, donors, itself, *more)
        )


def swap_whole_images(
    swap: Callable[[Tensor, Tensor, ValueRange], Tensor],
    explained: Tensor,
    annotation: Shaped[Tensor, " batch *area"],
    margin: int | None,
    generator: torch.Generator | None,
    without_evidence: bool,
    donors: Int[Tensor, " batch"] | None,
    itself: bool,
) -> tuple[Tensor, Bool[Tensor, " batch"]]:
    """Give every image a property of another one, so that it tells nothing of the class any more.

    Where the evidence lies, and a margin around it, does not matter; see `Swap` for the rest.

    Args:
        swap: Takes images, as many others and the range of their values, and returns the changed images.
        explained: As for `Swap`.
        annotation: As for `Swap`.
        margin: As for `Swap`.
        generator: As for `Swap`.
        without_evidence: As for `Swap`.
        donors: As for `Swap`.
        itself: As for `Swap`.

    Raises:
        ValueError: If the model is given no images.
    """
    _check_images(explained)
    # A sample that cannot be used (pixels that are not finite) is all ignored, and must not give what it has.
    usable = (annotation != IGNORED).flatten(1).any(1).to(explained.device)
    donor = random_donors(usable, generator, itself) if donors is None else donors.to(explained.device)
    swapped = usable & (usable.sum() > 1)
    if not swapped.any():
        return explained, swapped
    changed = swap(explained, explained[donor], value_range(list(explained[usable])))
    return torch.where(swapped[:, None, None, None], changed, explained), swapped


def swap_surroundings_and_statistics(
    explained: Tensor,
    annotation: Shaped[Tensor, " batch *area"],
    margin: int | None,
    generator: torch.Generator | None,
    without_evidence: bool,
    donors: Int[Tensor, " batch"] | None,
    itself: bool,
) -> tuple[Tensor, Bool[Tensor, " batch"]]:
    """Give every image the surroundings of one other, and what is left of it the statistics of another; see `Swap`.

    A model that must not read what lies outside the evidence reads a tint that lies on it all the more, and the other
    way round. Both at a time leave neither.

    Raises:
        ValueError: If the model is given no images, or sizes differ.
    """
    _check_images(explained)
    surrounded, elsewhere = swap_surroundings(
        explained, annotation, margin, generator, without_evidence, donors, itself
    )
    recoloured, changed = swap_whole_images(
        swap_statistics, explained, annotation, margin, generator, without_evidence, donors, itself
    )
    elsewhere = elsewhere.to(explained.device)
    # Surroundings come from the images as they were: one in other colours could bring an image its own tint back.
    return lay_around(recoloured, surrounded, elsewhere, annotation, margin), elsewhere | changed


def lay_around(
    images: Float[Tensor, "batch channels height width"],
    surrounded: Float[Tensor, "batch channels height width"],
    swapped: Bool[Tensor, " batch"],
    annotation: Shaped[Tensor, "batch height width"],
    margin: int | None,
) -> Float[Tensor, "batch channels height width"]:
    """Return images with the surroundings that others of them have.

    Args:
        images: What stays where the evidence lies.
        surrounded: The images whose surroundings are taken.
        swapped: Which images take any.
        annotation: As for `Swap`.
        margin: As for `Swap`.
    """
    outside = outside_evidence(annotation, margin or 0).to(images.device) & swapped[:, None, None]
    return torch.where(outside[:, None], surrounded, images)


def _check_images(explained: Tensor) -> None:
    """Reject what has no channels of colour.

    Raises:
        ValueError: If these are no images.
    """
    if explained.ndim != 4 or not explained.is_floating_point():
        raise ValueError(
            "a swap of statistics, detail, shading or edges is one of images [batch, channels, height, width], and the "
            f"model is given {tuple(explained.shape)} of {explained.dtype}"
        )


SWAPS = {
    swap.name: swap
    for swap in (
        Swap(OUTSIDE, swap_surroundings, needs_annotation=True),
        Swap("statistics", partial(swap_whole_images, swap_statistics), needs_annotation=False),
        Swap("detail", partial(swap_whole_images, swap_detail), needs_annotation=False),
        Swap("shading", partial(swap_whole_images, swap_shading), needs_annotation=False),
        Swap("edges", partial(swap_whole_images, swap_edges), needs_annotation=False),
        Swap("outside+statistics", swap_surroundings_and_statistics, needs_annotation=True),
    )
}
"""The swaps that take nothing but a batch, by the names that users give; those of texts read them by a tokenizer, see
`lrptrain.guidance.text_swaps`."""
