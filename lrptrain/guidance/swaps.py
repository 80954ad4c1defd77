"""What guidance swaps between the samples of a batch: all outside the evidence, or the statistics of whole images."""

from typing import Protocol

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.intervention.statistics import swap_statistics, value_range
from lrptrain.intervention.swap import random_cycle, swap_surroundings


class Swap(Protocol):
    """A kind of swap.

    Attributes:
        needs_annotation: Whether it goes by where the evidence is.
    """

    needs_annotation: bool

    def __call__(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        margin: int | None = None,
        generator: torch.Generator | None = None,
        without_evidence: bool = False,
    ) -> tuple[Tensor, Bool[Tensor, " batch"]]:
        """Swap between the samples of a batch.

        Args:
            explained: What the step gives the model: images, token ids or embeddings.
            annotation: 1 evidence, 0 not, 255 ignored; a sample that is all 255 takes no part.
            margin: Pixels or tokens around the evidence that are kept; None for the default.
            generator: The random numbers of the swap.
            without_evidence: Whether donors give their surroundings alone, where it goes by the evidence.

        Returns:
            The input of all samples, and which of them were swapped.
        """
        ...


class OutsideSwap(Swap):
    """Another sample's content takes the place of what lies outside the evidence."""

    needs_annotation = True

    def __call__(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        margin: int | None = None,
        generator: torch.Generator | None = None,
        without_evidence: bool = False,
    ) -> tuple[Tensor, Bool[Tensor, " batch"]]:
        """Swap what lies outside the evidence; see `Swap`."""
        return swap_surroundings(explained, annotation, margin, generator, without_evidence)


class StatisticsSwap(Swap):
    """Another image gives mean and spread of every channel: colour and contrast then tell nothing of the class."""

    needs_annotation = False

    def __call__(
        self,
        explained: Tensor,
        annotation: Shaped[Tensor, " batch *area"],
        margin: int | None = None,
        generator: torch.Generator | None = None,
        without_evidence: bool = False,
    ) -> tuple[Tensor, Bool[Tensor, " batch"]]:
        """Swap the statistics of whole images; see `Swap`.

        Raises:
            ValueError: If the model is given no images.
        """
        if explained.ndim != 4 or not explained.is_floating_point():
            raise ValueError(
                "swap='statistics' is one of images [batch, channels, height, width], and the model is given "
                f"{tuple(explained.shape)} of {explained.dtype}"
            )
        # A sample that cannot be used (pixels that are not finite) is all ignored, and must not give its statistics.
        usable = (annotation != IGNORED).flatten(1).any(1).to(explained.device)
        givers = usable.nonzero().flatten()
        donor = torch.arange(len(explained), device=explained.device)
        donor[givers] = givers[random_cycle(len(givers), generator).to(explained.device)]
        swapped = usable & (len(givers) > 1)
        if not swapped.any():
            return explained, swapped
        changed = swap_statistics(explained, explained[donor], value_range(list(explained[givers])))
        return torch.where(swapped[:, None, None, None], changed, explained), swapped


SWAPS: dict[str, Swap] = {"outside": OutsideSwap(), "statistics": StatisticsSwap()}
"""All kinds of swaps, by the names that users give."""
