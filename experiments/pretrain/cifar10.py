"""CIFAR-10 from its zip of JPEG files, and as the models take it."""

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from experiments.vision import MEAN, STD

CLASSES, SIDE = 10, 32


def load(path: Path, split: str, every: int) -> tuple[UInt8[Tensor, "n 3 32 32"], Int[Tensor, " n"]]:
    """Every so manieth image of `train` or `test`, and its class in alphabetical order."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith(f"{split}/") and name.endswith(".jpg"))
        classes = sorted({name.split("/")[1] for name in names})
        names = names[::every]
        pixels = [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names]
    labels = torch.tensor([classes.index(name.split("/")[1]) for name in names])
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous(), labels


def normalised(pixels: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
    """As the pre-trained models expect them."""
    mean, std = (torch.tensor(x, device=pixels.device)[:, None, None] for x in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std
