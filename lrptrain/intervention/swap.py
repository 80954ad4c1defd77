"""The one swap: a region of a sample is replaced by what another sample of the data, its donor, has there.

Interventions and guidance both use it. What they share is here: the region outside the evidence with its
margin, and the exchange itself. What differs between them is an argument, because their aims differ:

- *Who is the donor.* An intervention compares donors that the model reads as another class with donors that it reads as
  the same class (`donors_by_prediction`). A training step knows no such thing for its batch: every sample gives once
  (`random_donors`). A loss that compares a sample with its swap has nothing to learn from a sample that is its own
  donor. A step that learns the labels of swapped samples needs such ones: see there.
- *The donor's own evidence.* An intervention measures the surroundings alone, so it paints the evidence of a donor over
  (`donor_evidence`). A loss beside the task's takes donors as they are: another object in the surroundings is a
  distraction that the model is to bear. A step that is trained on swaps alone would have much less to learn from then.
- *The margin.* Neither a loss nor its judge keeps any pixels around the evidence: a tint can be read in a ring of two.
  What is painted over ends a few pixels away from it (`default_margin`).
- *Which tokens of a text.* An intervention uses every content token of the donor once before any twice
  (`places_in_order`); training draws with replacement (`random_places`).
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.annotations import IGNORED
from lrptrain.cues.painting import Images, Pixels, dilate, inpainted

FEWEST_DONORS = 5
"""With fewer samples of other predicted classes, one odd sample would be the donor of many, and decide their test."""
LARGE_RING = 0.1
"""A margin that keeps more of the surroundings, in [0, 1], may keep enough of them to be read."""
TokenValues = Shaped[Tensor, "batch tokens *width"]


def default_margin(size: tuple[int, int]) -> int:
    """Return how many pixels around the evidence belong to it where something is painted over: 2 up to 167, 4 at 224.

    Painting over continues what is kept: from the very edge of the evidence, it would spread that over the image. And
    masks seldom hold the very edge of an object. Swaps keep none of it, as they leave nothing to be continued.
    """
    return max(2, min(size) // 56)


def outside_evidence(mask: Shaped[Tensor, "batch height width"], margin: int | None = None) -> Pixels:
    """Return the pixels outside the evidence; none of a sample without evidence, of which nothing would be left.

    Args:
        mask: 1 evidence, 0 not, 255 ignored. What is ignored is not outside.
        margin: Pixels around the evidence, and around what is ignored, that are not outside either; None for
            `default_margin`.
    """
    margin = default_margin((mask.shape[1], mask.shape[2])) if margin is None else margin
    evidence = mask == 1
    return ~dilate(evidence | (mask == IGNORED), margin) & evidence.flatten(1).any(1)[:, None, None]


def ring_share(mask: Shaped[Tensor, "batch height width"], margin: int) -> float:
    """Return which share, in [0, 1], of what lies outside the evidence a swap keeps for its margin; nan of nothing.

    Args:
        mask: As for `outside_evidence`.
        margin: Pixels around the evidence.
    """
    everything = int(outside_evidence(mask, 0).sum())
    return 1 - int(outside_evidence(mask, margin).sum()) / everything if everything else math.nan


def swap_pixels(images: Images, region: Pixels, donors: Images, donor_evidence: Pixels | None = None) -> Images:
    """Replace a region of every image by what its donor has there.

    Args:
        images: The images to change.
        region: The pixels to replace.
        donors: The donor of every image, of the same size.
        donor_evidence: Pixels of the donors to paint over first, from their surroundings; None to take donors as they
            are.
    """
    # The donor's object would be evidence for its class, and the change no longer that of the surroundings alone.
    donors = donors if donor_evidence is None else inpainted(donors, donor_evidence)
    return torch.where(region[:, None], donors, images)


def swap_places(
    tokens: TokenValues, region: Bool[Tensor, "batch tokens"], donors: TokenValues, places: Int[Tensor, "batch tokens"]
) -> TokenValues:
    """Replace the tokens of a region by tokens of the donors.

    Args:
        tokens: Token ids, or embeddings.
        region: The tokens to replace.
        donors: The donor of every text; its length may differ.
        places: For every token, where in the donor its replacement stands.
    """
    width = tokens.shape[2:]
    # Embeddings [batch, tokens, width] take all numbers of a place: [batch, tokens] becomes [batch, tokens, width].
    index = places.view(*places.shape, *[1] * len(width)).expand(*places.shape, *width)
    return torch.where(region.view(*region.shape, *[1] * len(width)), donors.gather(1, index), tokens)


def swap_outside(
    images: Images,
    mask: Shaped[Tensor, "batch height width"],
    margin: int | None = None,
    generator: torch.Generator | None = None,
    without_evidence: bool = False,
    donors: Int[Tensor, " batch"] | None = None,
    itself: bool = False,
) -> tuple[Images, Bool[Tensor, " batch"]]:
    """Replace everything outside the evidence by another image of the batch, by default its object included.

    Args:
        images: At least two images, or nothing is swapped.
        mask: 1 evidence, 0 not, 255 ignored, of the images' size. What is ignored is kept.
        margin: Pixels around the evidence that are kept, too; None for 0.
        generator: The random numbers of the order in which the images give each other their surroundings.
        without_evidence: Whether the donor's object, with `default_margin` around it, is painted over first.
        donors: For every image the index of its donor; None for random ones.
        itself: Whether a random donor may be the image itself.

    Returns:
        The images, and which of them were swapped; those without any evidence are as before.

    Raises:
        ValueError: If the sizes differ or the margin is negative.
    """
    if mask.shape != (images.shape[0], *images.shape[2:]):
        raise ValueError(
            f"mask {tuple(mask.shape)} must be [batch, height, width] of the images, which are {tuple(images.shape)}"
        )
    _check_margin(margin)
    swapped = _has_evidence(mask) & (len(mask) > 1)
    everyone = torch.ones(len(images), dtype=torch.bool, device=images.device)
    donor = random_donors(everyone, generator, itself) if donors is None else donors.to(images.device)
    region = (outside_evidence(mask, margin or 0) & swapped[:, None, None]).to(images.device)
    painted_over = None
    if without_evidence:
        # With the default margin, whatever that of the swap: masks seldom hold the very edge of an object, and that of
        # a donor would be evidence for its class.
        edge = default_margin((mask.shape[1], mask.shape[2]))
        # Row i is the evidence of the image whose surroundings image i is given; its own stays as it is.
        another = donor != torch.arange(len(images), device=images.device)
        painted_over = dilate(mask == 1, edge).to(images.device)[donor] & another[:, None, None]
    return swap_pixels(images, region, images[donor], painted_over), swapped


def swap_tokens(
    tokens: TokenValues,
    rationale: Shaped[Tensor, "batch tokens"],
    margin: int | None = None,
    generator: torch.Generator | None = None,
    without_evidence: bool = False,
    donors: Int[Tensor, " batch"] | None = None,
    itself: bool = False,
) -> tuple[TokenValues, Bool[Tensor, " batch"]]:
    """Replace every token outside the evidence by a random one of another text of the batch.

    Args:
        tokens: Ids, or embeddings, of at least two texts, or nothing is swapped.
        rationale: 1 evidence, 0 not, 255 ignored. What is ignored (special tokens, padding) is kept, and never given.
        margin: Tokens on each side of the evidence that are kept, too; None for 0.
        generator: The random numbers of which text gives to which, and what.
        without_evidence: Whether donors give none of their evidence, if they have anything else to give.
        donors: For every text the index of its donor; None for random ones of those that have something to give.
        itself: Whether a random donor may be the text itself.

    Returns:
        The tokens, and which texts were swapped; those without any evidence are as before.

    Raises:
        ValueError: If the shapes differ or the margin is negative.
    """
    if rationale.shape != tokens.shape[:2]:
        raise ValueError(f"rationale {tuple(rationale.shape)} must be [batch, tokens] of {tuple(tokens.shape)}")
    _check_margin(margin)
    margin = margin or 0
    usable = rationale != IGNORED
    # A text that is all ignored has no token to give: only the others take part.
    gives = usable.any(1)
    swapped = _has_evidence(rationale) & (gives.sum() > 1)
    donor = (random_donors(gives, generator, itself) if donors is None else donors).to(tokens.device)
    near = F.max_pool1d((rationale == 1).float(), 2 * margin + 1, stride=1, padding=margin) > 0
    available = usable
    if without_evidence:
        surroundings = usable & (rationale != 1)
        # A text that is all evidence still has to give something: all of it, then.
        available = torch.where(surroundings.any(1, keepdim=True), surroundings, usable)
    # Rows that are not swapped may have no usable token, and cannot be drawn from: all of theirs are allowed instead.
    places = random_places(torch.where(swapped[:, None], available[donor], True), generator).to(tokens.device)
    return swap_places(tokens, usable & ~near & swapped[:, None], tokens[donor], places), swapped


def swap_surroundings(
    explained: Tensor,
    annotation: Shaped[Tensor, " batch *area"],
    margin: int | None = None,
    generator: torch.Generator | None = None,
    without_evidence: bool = False,
    donors: Int[Tensor, " batch"] | None = None,
    itself: bool = False,
) -> tuple[Tensor, Bool[Tensor, " batch"]]:
    """Swap what lies outside the evidence with other samples of the batch, of images or texts.

    Args:
        explained: Images, token ids or embeddings.
        annotation: 1 evidence, 0 not, 255 ignored: a mask per image, or a rationale per text.
        margin: Pixels or tokens around the evidence that are kept; None for 0.
        generator: The random numbers of the swap.
        without_evidence: Whether donors give their surroundings alone.
        donors: For every sample the index of its donor; None for random ones.
        itself: Whether a random donor may be the sample itself.

    Returns:
        The input of all samples, and which samples were swapped.

    Raises:
        ValueError: If sizes differ or the margin is negative.
    """
    swap = swap_outside if explained.ndim == 4 else swap_tokens
    return swap(explained, annotation, margin, generator, without_evidence, donors, itself)


def random_donors(
    usable: Bool[Tensor, " batch"], generator: torch.Generator | None = None, itself: bool = True
) -> Int[Tensor, " batch"]:
    """Return for every usable sample a random one of these, each once; the others have themselves.

    Args:
        usable: Which samples give and take.
        generator: The random numbers.
        itself: Whether it may be the sample itself. Who never has itself for a donor has one of another class more
            often than by chance. A shortcut that is easy to read would tell the other class then: of 16 samples of two
            classes in 8 of 15, of 4 in 2 of 3.
    """
    donors = torch.arange(len(usable), device=usable.device)
    givers = usable.nonzero().flatten()
    order = torch.randperm(len(givers), generator=generator) if itself else random_cycle(len(givers), generator)
    donors[givers] = givers[order.to(usable.device)]
    return donors


def random_cycle(count: int, generator: torch.Generator | None = None) -> Int[Tensor, " count"]:
    """Return for each index another one, each once: all of them in one random cycle."""
    order = torch.randperm(count, generator=generator)
    # e.g. the order 2 0 1: 0 takes from 2, 1 takes from 0, 2 takes from 1
    return torch.empty_like(order).index_copy_(0, order, order.roll(1))


def donors_by_prediction(
    predicted: Int[np.ndarray, " samples"], rows: Int[np.ndarray, " m"], seed: int, same_class: bool = False
) -> Int[np.ndarray, " samples"]:
    """Return for each of the rows a random other one that is read as another class, or as the same class.

    Args:
        predicted: The predicted class of every sample.
        rows: Samples that take and give.
        seed: The seed of the draw.
        same_class: Whether the donor is to be read as the same class.

    Returns:
        An index per sample; -1 for samples without a donor.

    Raises:
        ValueError: If all rows are read as the same class, or nearly all.
    """
    if len(np.unique(predicted[rows])) < 2:
        raise ValueError("the model predicts the same class for all of these samples: there is nothing to swap")
    others = len(rows) - int(np.unique(predicted[rows], return_counts=True)[1].max())
    if others < FEWEST_DONORS:
        raise ValueError(
            f"the model predicts the same class for all but {others} of these samples: too few to swap with"
        )
    rng = np.random.default_rng([seed, same_class])
    # Rows sorted by class, in random order within each: the class of position p is order[first[p] : behind[p]].
    order = rows[np.lexsort((rng.random(len(rows)), predicted[rows]))]
    classes = predicted[order]
    position = np.arange(len(order))
    first = np.searchsorted(classes, classes, "left")
    behind = np.searchsorted(classes, classes, "right")
    size = behind - first
    # Same class: from 1 to size - 1 steps ahead within it, around its end, so never oneself (but for a class of one).
    # Another class: from 0 to len - size - 1 steps ahead of the class's end, around the end of the whole order.
    # e.g. classes [0 0 0 1 1]: position 1 draws from 2 and 0, or from 3 and 4; position 3 from 4, or from 0, 1 and 2.
    if same_class:
        chosen = first + (position - first + 1 + np.floor(rng.random(len(order)) * (size - 1)).astype(int)) % size
    else:
        chosen = (behind + np.floor(rng.random(len(order)) * (len(order) - size)).astype(int)) % len(order)
    donors = np.full(len(predicted), -1)
    # Whoever is alone in its class has drawn itself, and has no donor.
    donors[order] = np.where(order[chosen] == order, -1, order[chosen])
    return donors


def donors_of_class(
    predicted: Int[np.ndarray, " samples"], label: int, seed: int
) -> tuple[Int[np.ndarray, " samples"], Int[np.ndarray, " samples"]]:
    """Return for each sample of other predicted classes a random one of a class, and a random one of a third class.

    Args:
        predicted: The predicted class of every sample.
        label: The class.
        seed: The seed of the draw.

    Returns:
        Two indices per sample; -1 for those of the class itself, and where there is no sample of a third class.

    Raises:
        ValueError: If too few samples are read as the class, or as any third one.
    """
    members = np.flatnonzero(predicted == label)
    others = np.unique(predicted[predicted != label])
    if len(members) < FEWEST_DONORS or len(others) < 2:
        raise ValueError("too few of these samples are read as the class, or as any third one: nothing to swap with")
    rng = np.random.default_rng([seed, 2])
    donors = np.where(predicted == label, -1, members[rng.integers(len(members), size=len(predicted))])
    controls = np.full(len(predicted), -1)
    for each in others:
        thirds = np.flatnonzero((predicted != label) & (predicted != each))
        rows = np.flatnonzero(predicted == each)
        controls[rows] = thirds[rng.integers(len(thirds), size=len(rows))]
    return donors, controls


def random_places(
    usable: Bool[Tensor, "batch tokens"], generator: torch.Generator | None = None
) -> Int[Tensor, "batch tokens"]:
    """Draw for every token the place of a usable token of the donor, with replacement."""
    weights = usable.float().cpu()
    return torch.multinomial(weights, usable.shape[1], replacement=True, generator=generator)


def places_in_order(
    region: Bool[Tensor, "batch tokens"], usable: Bool[Tensor, "batch _tokens"], keys: Float[Tensor, "batch _tokens"]
) -> Int[Tensor, "batch tokens"]:
    """Return for every token of a region the place of a usable token of the donor, each once before any twice.

    Args:
        region: The tokens to replace; places of other tokens mean nothing.
        usable: Tokens of the donors that may be given.
        keys: Random numbers; usable tokens are given in their order.
    """
    # e.g. usable places 1, 2, 4 in the random order 4 1 2: a region of five tokens is given the places 4 1 2 4 1.
    order = torch.where(usable, keys, torch.inf).argsort(1)
    number = (region.cumsum(1) - 1).clamp(min=0)  # the how-many-th token of the region
    return order.gather(1, number % usable.sum(1, keepdim=True).clamp(min=1))


def _has_evidence(annotation: Shaped[Tensor, " batch *area"]) -> Bool[Tensor, " batch"]:
    return (annotation == 1).flatten(1).any(1)


def _check_margin(margin: int | None) -> None:
    if margin is not None and margin < 0:
        raise ValueError(f"margin must not be negative, got {margin}")
