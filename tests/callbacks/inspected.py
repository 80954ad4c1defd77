"""Images of which it is known what tells their class."""

import torch
from torch import Tensor

SIDE, COUNT = 16, 96


def images(tells: str, seed: int = 0, count: int = COUNT) -> dict[str, Tensor]:
    """Noise with a bright square somewhere, which is annotated, and a bright corner.

    Args:
        tells: What has the colour of the class: "object", "corner", "both" or "none"; the other has any.
        seed: The seed.
        count: The number of images.
    """
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 3
    image = 0.3 * torch.randn(count, 3, SIDE, SIDE, generator=generator)
    mask = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    places = torch.randint(4, 9, (count, 2), generator=generator)
    other = torch.randint(0, 3, (count,), generator=generator)
    for row, (top, left) in enumerate(places.tolist()):
        mask[row, top : top + 4, left : left + 4] = 1
        square = label[row] if tells in ("object", "both") else other[row]
        image[row, square, top : top + 4, left : left + 4] += 1 if tells == "both" else 2
        corner = label[row] if tells in ("corner", "both") else other[row]
        image[row, corner, :4, :4] += 2
    return {"image": image, "mask": mask, "label": label}
