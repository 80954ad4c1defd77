"""Right reasons in latent space: a trained model unlearns to follow the directions of a shortcut, at several blocks.

Dreyer et al. 2024, "From hope to safety: unlearning biases of deep models via gradient penalization in latent space"
(RR-ClArC). Directions are concept activation vectors of the signal-pattern kind (Pahde et al. 2022).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.guidance.fitting import Batch, Trained
from lrptrain.batch.call import rows_of
from lrptrain.cues.donors import random_cycle
from lrptrain.guidance.swap import Swap

COPIES, AT_ONCE = 5, 64
"""How often each annotated sample is given the surroundings of another one; samples per forward pass."""
Inputs = Callable[[Batch], Batch]
Directions = Sequence[Float[Tensor, "classes width"]]
"""Of each block, one per class: where activations go when the surroundings are those of that class."""


class Corrected(Trained):
    """Cross-entropy, and a penalty on what the logits change by along the directions of a shortcut.

    Args:
        trained: The module whose network is corrected.
        directions: Of the shortcut, at the output of each block.
        factor: Of the penalty.
        seed: Of the signs by which the logits of a sample are added up.
    """

    def __init__(self, trained: Trained, directions: Directions, factor: float, seed: int) -> None:
        super().__init__(trained.net, trained.inputs, trained.arm, trained.lr, precision=trained.trained_in)
        self.directions, self.factor = directions, factor
        self.generator = torch.Generator().manual_seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        # The fused kernels of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH), block_outputs(self.net) as outputs:
            output = self.net(**self.inputs(batch))
        logits = getattr(output, "logits", output)
        signs = torch.randint(0, 2, logits.shape, generator=self.generator).to(logits) * 2 - 1
        along = penalty((signs * logits).sum(), outputs, attended(batch, outputs[0]), self.directions)
        return F.cross_entropy(logits, batch["label"]) + self.factor * along


def penalty(
    total: Float[Tensor, ""],
    outputs: Sequence[Float[Tensor, "batch tokens width"]],
    attended: Float[Tensor, "batch tokens"],
    directions: Directions,
) -> Float[Tensor, ""]:
    """The mean over blocks and samples of the squared derivatives along the directions, with their graph.

    A derivative is that of a sum of logits with random signs, where all tokens move along a direction.
    """
    gradients = torch.autograd.grad(total, list(outputs), create_graph=True)
    of_blocks = [
        ((gradient.float() * attended[..., None]).sum(1) @ each.T).square().sum(1).mean()
        for gradient, each in zip(gradients, directions, strict=True)
    ]
    return torch.stack(of_blocks).mean()


@torch.no_grad()
def shortcut_directions(net: nn.Module, inputs: Inputs, annotated: Batch, classes: int, seed: int) -> Directions:
    """Directions by annotated samples that are given the surroundings of others: their own objects tell nothing.

    Args:
        net: The network that reads the shortcut.
        inputs: What of a batch it is given.
        annotated: Samples that all have an annotation.
        classes: How many there are.
        seed: Of who gives to whom.
    """
    generator = torch.Generator().manual_seed(seed)
    (surroundings,) = Swap().cues("texts" if "input_ids" in annotated else "images")
    found: list[list[Tensor]] = []
    givers = []
    for _ in range(COPIES):
        donors = random_cycle(len(annotated["label"]), generator)
        givers.append(annotated["label"][donors])
        found.append(activations(net, inputs, surroundings.exchange(annotated, rows_of(annotated, donors))))
    giver = torch.cat(givers)
    of_blocks = [torch.cat(parts) for parts in zip(*found, strict=True)]
    return [torch.stack([pattern(each, giver == label) for label in range(classes)]) for each in of_blocks]


def pattern(activations: Float[Tensor, "n width"], member: Bool[Tensor, " n"]) -> Float[Tensor, " width"]:
    """The covariance of activations and membership over the variance of membership, of length 1."""
    share = member.double().mean()
    centred = activations.double() - activations.double().mean(0)
    direction = (centred * (member.double() - share)[:, None]).mean(0) / (share * (1 - share))
    return F.normalize(direction, dim=0).float()


def activations(net: nn.Module, inputs: Inputs, batch: Batch) -> list[Float[Tensor, "n width"]]:
    """The mean over tokens of each block's output, of all samples of a batch."""
    means: list[list[Tensor]] = []
    for start in range(0, len(batch["label"]), AT_ONCE):
        part = {name: values[start : start + AT_ONCE] for name, values in batch.items()}
        with block_outputs(net) as outputs:
            net(**inputs(part))
        seen = attended(part, outputs[0])[..., None]
        means.append([(each.float() * seen).sum(1) / seen.sum(1) for each in outputs])
    return [torch.cat(parts) for parts in zip(*means, strict=True)]


def attended(batch: Batch, output: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens"]:
    """1 for every token but padding."""
    return batch["attention_mask"].float() if "attention_mask" in batch else torch.ones(output.shape[:2])


@contextmanager
def block_outputs(net: nn.Module) -> Iterator[list[Tensor]]:
    """What the blocks of a network return in its next pass, in their order."""
    blocks = next(each for each in net.modules() if isinstance(each, nn.ModuleList | nn.Sequential))
    outputs: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        outputs.append(output if isinstance(output, Tensor) else output[0])

    hooks = [block.register_forward_hook(note) for block in blocks]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
