"""A light decoder on the patch tokens of a classifier's ViT, which makes it a segmenter."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import record
from lrptrain.relevance.types import TokenLayout, UnsupportedModelError

PatchStates = list[Float[Tensor, "batch width rows columns"]]


class PatchTokens(nn.Module):
    """Runs a classifier and returns its patches' states after some blocks, in the order of the blocks.

    Where the patches stand in the sequence is read off one recorded forward pass, as for relevance; so is which modules
    are blocks: the outermost items of a `ModuleList` or `Sequential` that return the states of all tokens.

    Args:
        model: A ViT of timm, torchvision or transformers with its classification head; it is not copied.
        size: Height and width, or side, of the images that the model takes, in pixels.
        blocks: The number of blocks to read, evenly spaced, the last among them.

    Attributes:
        width: The number of features of a token.
        patch: Height and width of a patch in pixels.
        names: Names of the modules that are read.

    Raises:
        UnsupportedModelError: If the patches are not in one piece among the tokens, or no module returns all tokens.
        ValueError: If the model has fewer blocks than `blocks`.
    """

    def __init__(self, model: nn.Module, size: int | tuple[int, int], blocks: int = 1) -> None:
        super().__init__()
        self.model = model
        height, width = (size, size) if isinstance(size, int) else size
        example = next(model.parameters()).new_zeros(1, 3, height, width)
        layout = record(model, example).layout
        self.first = layout.positions[0]
        if layout.grid is None or layout.positions != tuple(range(self.first, self.first + len(layout.positions))):
            raise UnsupportedModelError("the patches do not stand in one piece, row by row, among the tokens")
        self.patch = height // layout.grid[0], width // layout.grid[1]
        widths = _token_modules(model, example, layout)
        if not 1 <= blocks <= len(widths):
            raise ValueError(f"blocks must lie between 1 and the {len(widths)} that the model has, got {blocks}")
        names = list(widths)
        # 2 of 12 blocks are those at 5 and 11: evenly spaced, the last one always among them.
        self.names = [names[round((i + 1) * len(names) / blocks) - 1] for i in range(blocks)]
        self.width = widths[names[-1]]

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> PatchStates:
        """Return the states of the patches, `[batch, width, rows, columns]` for each block that is read."""
        rows = image.shape[-2] // self.patch[0]
        columns = image.shape[-1] // self.patch[1]
        states = _outputs(self.model, image, self.names)
        # [batch, length, width] -> the patches alone -> [batch, width, patches] -> [batch, width, rows, columns]
        last = self.first + rows * columns
        return [states[name][:, self.first : last].mT.unflatten(2, (rows, columns)) for name in self.names]


def _token_modules(model: nn.Module, example: Tensor, layout: TokenLayout) -> dict[str, int]:
    """Return the width of what every block returns, by its name, in the order of the blocks.

    Raises:
        UnsupportedModelError: If there are none.
    """
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    items = [f"{name}.{child}".lstrip(".") for name in lists for child, _ in model.get_submodule(name).named_children()]
    with torch.no_grad():
        outputs = _outputs(model, example, items)
    # A block is recognised by what it returns: the states of all tokens, [1, length, width].
    blocks = {
        name: states.shape[2]
        for name, states in outputs.items()
        if states.ndim == 3 and states.shape[:2] == (1, layout.length)
    }
    if not blocks:
        raise UnsupportedModelError(
            f"no block returns the states of the {layout.length} tokens: the outputs of the items of ModuleList and "
            "Sequential were looked at; give the segmenter a module of your own"
        )
    # Of nested modules the outermost: "blocks.0" is a block, "blocks.0.mlp.0" within it is not.
    return {name: width for name, width in blocks.items() if not any(name.startswith(f"{other}.") for other in blocks)}


def _outputs(model: nn.Module, image: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the outputs of modules in a forward pass, in the order in which they end; of a tuple the first entry."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: Any, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        if isinstance(state, Tensor):
            outputs[name] = state

    hooks = [model.get_submodule(name).register_forward_hook(partial(keep, name)) for name in names]
    try:
        model(image)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


class PatchDecoder(nn.Module):
    """Decode a ViT's patch tokens, step by step, into logits of the background and the classes per pixel.

    Args:
        model: A ViT of timm, torchvision or transformers with its classification head. It is trained along: pass a
            copy (`copy.deepcopy`) to keep the classifier.
        classes: The number of classes, without the background.
        size: Height and width, or side, of the images that the model takes, in pixels.
        blocks: The number of blocks to read, evenly spaced, the last among them.
        width: Channels at the patches' resolution; every step halves them, down to 16.
        skip: Whether each step also reads the image, averaged to its resolution: edges are finer than patches.
        frozen: Whether the ViT stays as it is, in evaluation mode.

    Raises:
        UnsupportedModelError: If the patches cannot be found among the model's tokens.
        ValueError: If the model has fewer blocks than `blocks`.
    """

    def __init__(
        self,
        model: nn.Module,
        classes: int,
        size: int | tuple[int, int],
        blocks: int = 2,
        width: int = 64,
        skip: bool = True,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = PatchTokens(model, size, blocks)
        self.skip = skip
        self.frozen = frozen
        if frozen:
            model.requires_grad_(False).eval()
        self.norms = nn.ModuleList(nn.GroupNorm(1, self.tokens.width) for _ in range(blocks))
        self.join = nn.Conv2d(blocks * self.tokens.width, width, 1)
        # Each step doubles the resolution: patches of 16 pixels take 4, with the widths 64, 32, 16, 16, 16.
        steps = max(self.tokens.patch).bit_length() - 1
        widths = [max(width >> step, min(16, width)) for step in range(steps + 1)]
        self.steps = nn.ModuleList(_step(before + 3 * skip, after) for before, after in pairwise(widths))
        self.head = nn.Conv2d(widths[-1], 1 + classes, 1)

    def train(self, mode: bool = True) -> "PatchDecoder":
        """Set the mode of all but a frozen ViT."""
        super().train(mode)
        if self.frozen:
            self.tokens.eval()
        return self

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch logits height width"]:
        """Return the logits at the images' size."""
        # A frozen ViT needs no graph, so its activations are not kept.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            tokens = self.tokens(image)
        x = self.join(torch.cat([norm(states) for norm, states in zip(self.norms, tokens, strict=True)], 1))
        # `left` steps follow this one, so the sides here are those of the image divided by 2 ** left.
        for left, step in zip(range(len(self.steps) - 1, -1, -1), self.steps, strict=True):
            height, width = (side >> left for side in image.shape[-2:])
            x = F.interpolate(x, (height, width), mode="bilinear", align_corners=False)
            x = step(torch.cat([x, F.adaptive_avg_pool2d(image, (height, width))], 1) if self.skip else x)
        return self.head(F.interpolate(x, image.shape[-2:], mode="bilinear", align_corners=False))


def _step(before: int, after: int) -> nn.Module:
    """Return a 3 x 3 convolution with a norm over each image: unlike a batch norm it works for batches of any size."""
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(1, after), nn.GELU())
