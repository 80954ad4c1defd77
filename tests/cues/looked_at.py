"""Images of noise, and what a look makes of them."""

import torch
from torch.nn import functional as F

SIZES = [(16, 16), (15, 22)]


def images(seed, size=(16, 16), channels=3, count=4):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(count, channels, channels, generator=generator).double()
    values = torch.randn(count, channels, *size, generator=generator).double()
    smooth = F.avg_pool2d(values, 3, 1, 1) + 0.3 * values
    return (mixing @ smooth.flatten(2)).view_as(smooth) + torch.randn(count, channels, 1, 1, generator=generator)


def masks(size=(16, 16), count=4):
    """A thing of another place and size in each image, and a pixel that is ignored."""
    mask = torch.zeros(count, *size, dtype=torch.uint8)
    for row in range(count):
        mask[row, 2 + row : 9, 3 : 7 + row] = 1
    mask[:, 0, 0] = 255
    return mask


def transplanted(look, own, sources, inside=None, theirs=None):
    everything = torch.ones_like(own[:, 0], dtype=torch.bool)
    return look.of("image", "unreviewed").transplant(
        own, everything if inside is None else inside, sources, everything if theirs is None else theirs
    )
