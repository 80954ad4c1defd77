"""Scenes of one or two pets that were cut out of their photographs, before a texture."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from experiments.class_specific.scenes import Scenes, pairs
from experiments.data import dataset
from experiments.pets import RUNS, Split, load
from experiments.vision import MEAN, STD, fit, vit
from lrptrain.data.pictures import open_picture, to_image

HEIGHT, WIDTH = 32, 64
"""Of a scene, in pixels: a pet has half of the width."""
SMALLEST = 0.7
"""Smallest side of a pet, as a share of the height."""
STEPS, LR = 500, 3e-4
BREEDS = 3


@dataclass(frozen=True)
class Cutouts:
    """Pets as large as their frames (RGB in 0..1 times opacity, and opacity), breeds, textures to set them before."""

    pets: Float[Tensor, "n 4 side side"]
    labels: Int[Tensor, " n"]
    textures: Float[Tensor, "textures 3 height width"]


def cutouts(seed: int) -> dict[str, Cutouts]:
    """Of `train`, `val` (a fifth of the official trainval list, by seed) and `test`; no texture is in two of them."""
    kinds = [sorted(folder.glob("*.jpg")) for folder in sorted(dataset("textures").iterdir()) if folder.is_dir()]
    parts = {"train": slice(0, 4), "val": slice(4, 5), "test": slice(5, 6)}
    splits = load(dataset("pets"), 4 * HEIGHT, seed)
    return {
        name: Cutouts(_cut(splits[name]), splits[name].labels, _textures([x for kind in kinds for x in kind[part]]))
        for name, part in parts.items()
    }


def _cut(split: Split) -> Float[Tensor, "n 4 side side"]:
    """What surely is pet, cropped, in the middle of a square."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    found = []
    for image, mask in zip(split.images, split.masks, strict=True):
        opacity = (mask == 1).float()[None]
        rows, columns = (opacity[0].amax(axis).nonzero().flatten() for axis in (1, 0))
        window = (slice(None), slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
        cropped = torch.cat([(image * std + mean) * opacity, opacity])[window]
        height, width = cropped.shape[1:]
        gap = max(height, width) - torch.tensor([width, width, height, height])
        padded = F.pad(cropped, [int(gap[0]) // 2, int(gap[1] + 1) // 2, int(gap[2]) // 2, int(gap[3] + 1) // 2])
        found.append(F.interpolate(padded[None], (HEIGHT, HEIGHT), mode="area")[0])
    return torch.stack(found)


def _textures(paths: list[Path]) -> Float[Tensor, "n 3 height width"]:
    return torch.stack([to_image(open_picture(path), (HEIGHT, WIDTH)) for path in paths])


def scenes(pool: Cutouts, count: int, generator: torch.Generator, alone: float = 0.5) -> Scenes:
    """Two pets of different breeds side by side, each in its half, at a random size and place, mirrored or not.

    Args:
        pool: What to choose from.
        count: Number of scenes.
        generator: Of all that is random.
        alone: Share of the scenes in which the second pet is left out.
    """
    both = list(pairs(pool.labels, count, generator))
    single = torch.rand(count, generator=generator) < alone
    swapped = torch.rand(count, generator=generator) < 0.5
    image = pool.textures[torch.randint(len(pool.textures), (count,), generator=generator)]
    masks, labels = [], []
    for index, chosen in enumerate(both):
        pet = _placed(pool.pets[chosen], generator)
        if index == 1:
            pet = pet * ~single[:, None, None, None]
        empty = torch.zeros_like(pet)
        right = (swapped == (index == 0))[:, None, None, None]
        pet = torch.cat([torch.where(right, empty, pet), torch.where(right, pet, empty)], 3)
        image = pet[:, :3] + (1 - pet[:, 3:]) * image
        masks.append((pet[:, 3] > 0.5).to(torch.uint8))
        labels.append(pool.labels[chosen])
    labels[1] = labels[1].masked_fill(single, -1)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return Scenes((image - mean) / std, torch.stack(masks, 1), torch.stack(labels, 1))


def _placed(pets: Float[Tensor, "n 4 side side"], generator: torch.Generator) -> Float[Tensor, "n 4 side side"]:
    """Each at a random size within its frame."""
    size, x, y, mirror = torch.rand(4, len(pets), generator=generator)
    scale = SMALLEST + (1 - SMALLEST) * size
    theta = torch.zeros(len(pets), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = torch.where(mirror < 0.5, -1.0, 1.0) / scale, 1 / scale
    theta[:, 0, 2], theta[:, 1, 2] = (1 / scale - 1) * (2 * x - 1), (1 / scale - 1) * (2 * y - 1)
    return F.grid_sample(pets, F.affine_grid(theta, list(pets.shape), align_corners=False), align_corners=False)


def pet_model(train: Cutouts, seed: int) -> nn.Module:
    """The pre-trained ViT on scenes, trained once and kept: cross-entropy against equal shares for all present."""
    path = RUNS / f"pet_scenes_{seed}.pt"
    if path.exists():
        return vit(BREEDS, (HEIGHT, WIDTH), path).eval()
    torch.manual_seed(seed)
    model = vit(BREEDS, (HEIGHT, WIDTH), dataset("vit"))

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = scenes(train, 32, generator)
        return drawn.images, F.normalize(drawn.present(BREEDS), p=1, dim=1)

    fit(model, batch, STEPS, LR, seed=seed)
    RUNS.mkdir(exist_ok=True)
    torch.save(model.state_dict(), path)
    return model.eval()
