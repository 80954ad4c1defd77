"""A light decoder that makes a segmenter of a classifier's ViT."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.segmentation.patch_tokens import PatchTokens


class PatchDecoder(nn.Module):
    """Logits of the background and the classes per pixel: a ViT's patch tokens, up-sampled step by step.

    Args:
        model: A ViT of timm, torchvision or transformers with its classification head. It is trained along: pass a
            copy (`copy.deepcopy`) to keep the classifier.
        classes: How many, without the background.
        size: Height and width, or side, of images that the model takes.
        blocks: How many blocks' tokens are read, evenly spaced, the last among them.
        width: Channels at the patches' resolution; every step halves them, down to 16.
        skip: Give each step the image, too, averaged to its resolution: edges are finer than patches.
        frozen: Keep the ViT as it is, in evaluation mode.

    Raises:
        UnsupportedModelError: If the patches cannot be found among the model's tokens.
        ValueError: Fewer blocks than are asked for.
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
        self.skip, self.frozen = skip, frozen
        if frozen:
            model.requires_grad_(False).eval()
        self.norms = nn.ModuleList(nn.GroupNorm(1, self.tokens.width) for _ in range(blocks))
        self.join = nn.Conv2d(blocks * self.tokens.width, width, 1)
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
        """Logits at the images' size."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            tokens = self.tokens(image)
        x = self.join(torch.cat([norm(states) for norm, states in zip(self.norms, tokens, strict=True)], 1))
        for left, step in zip(range(len(self.steps) - 1, -1, -1), self.steps, strict=True):
            height, width = (side >> left for side in image.shape[-2:])
            x = F.interpolate(x, (height, width), mode="bilinear", align_corners=False)
            x = step(torch.cat([x, F.adaptive_avg_pool2d(image, (height, width))], 1) if self.skip else x)
        return self.head(F.interpolate(x, image.shape[-2:], mode="bilinear", align_corners=False))


def _step(before: int, after: int) -> nn.Module:
    """A 3 x 3 convolution; the norm is over each image, so that small batches do as well as large ones."""
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(1, after), nn.GELU())
