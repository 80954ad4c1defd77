"""A light decoder on the patch tokens of a classifier's ViT, which makes it a segmenter."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import record
from lrptrain.relevance.types import UnsupportedModelError


class PatchTokens(nn.Module):
    """Runs a classifier and returns its patches' states after some blocks; arguments as those of `PatchDecoder`.

    Where the patches stand in the sequence is read off one recorded forward pass, as for relevance. The blocks are the
    items of the outermost `ModuleList` or `Sequential` that return the states of all tokens.
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
        stacks = {x: part for x, part in model.named_modules() if isinstance(part, nn.ModuleList | nn.Sequential)}
        items = [[f"{x}.{child}".lstrip(".") for child, _ in part.named_children()] for x, part in stacks.items()]
        with torch.no_grad():
            outputs = _outputs(model, example, [name for stack in items for name in stack])
        # A block is recognised by what it returns: the states of all tokens, [1, length, width].
        tokens = {name for name, x in outputs.items() if x.ndim == 3 and x.shape[:2] == (1, layout.length)}
        # Of nested stacks the outermost, which comes first: "blocks.0" is a block, "blocks.0.mlp.0" within it is not.
        stacked = ([name for name in stack if name in tokens] for stack in items)
        names = next((stack for stack in stacked if stack), [])
        if not names:
            raise UnsupportedModelError(
                f"no item of a ModuleList or Sequential returns the states of the {layout.length} tokens; give the "
                "segmenter a module of your own"
            )
        if not 1 <= blocks <= len(names):
            raise ValueError(f"blocks must lie between 1 and the {len(names)} that the model has, got {blocks}")
        # 2 of 12 blocks are those at 5 and 11: evenly spaced, the last one always among them.
        self.names = [names[round((i + 1) * len(names) / blocks) - 1] for i in range(blocks)]
        self.width = outputs[names[-1]].shape[2]

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> list[Float[Tensor, "batch width rows columns"]]:
        """Return the states of the patches, `[batch, width, rows, columns]` for each block that is read."""
        grid = image.shape[-2] // self.patch[0], image.shape[-1] // self.patch[1]
        states = _outputs(self.model, image, self.names)
        patches = slice(self.first, self.first + grid[0] * grid[1])
        return [states[name][:, patches].mT.unflatten(2, grid) for name in self.names]


def _outputs(model: nn.Module, image: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the outputs of modules in a forward pass, in the order in which they end; of a tuple the first entry."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: Any, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        if isinstance(state, Tensor):
            outputs[name] = state

    with ExitStack() as stack:
        for name in names:
            stack.callback(model.get_submodule(name).register_forward_hook(partial(keep, name)).remove)
        model(image)
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

    Raises:
        UnsupportedModelError: If the patches are not in one piece among the tokens, or no module returns all tokens.
        ValueError: If the model has fewer blocks than `blocks`.
    """

    def __init__(
        self, model: nn.Module, classes: int, size: int | tuple[int, int], blocks: int = 2, width: int = 64
    ) -> None:
        super().__init__()
        self.tokens = PatchTokens(model, size, blocks)
        self.norms = nn.ModuleList(nn.GroupNorm(1, self.tokens.width) for _ in range(blocks))
        self.join = nn.Conv2d(blocks * self.tokens.width, width, 1)
        # Each step doubles the resolution: patches of 16 pixels take 4, with the widths 64, 32, 16, 16, 16.
        steps = max(self.tokens.patch).bit_length() - 1
        widths = [max(width >> step, min(16, width)) for step in range(steps + 1)]
        # Each also reads the image, averaged to its resolution: edges are finer than patches. A norm over each image:
        # unlike a batch norm it works for batches of any size.
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before + 3, after, 3, padding=1), nn.GroupNorm(1, after), nn.GELU())
            for before, after in pairwise(widths)
        )
        self.head = nn.Conv2d(widths[-1], 1 + classes, 1)

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch logits height width"]:
        """Return the logits at the images' size."""
        states = zip(self.norms, self.tokens(image), strict=True)
        x = self.join(torch.cat([norm(own) for norm, own in states], 1))
        # `left` steps follow this one, so the sides here are those of the image divided by 2 ** left.
        for left, step in zip(range(len(self.steps) - 1, -1, -1), self.steps, strict=True):
            size = (image.shape[-2] >> left, image.shape[-1] >> left)
            x = F.interpolate(x, size, mode="bilinear", align_corners=False)
            x = step(torch.cat([x, F.adaptive_avg_pool2d(image, size)], 1))
        return self.head(F.interpolate(x, image.shape[-2:], mode="bilinear", align_corners=False))
