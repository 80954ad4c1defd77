"""A ViT that knows which digits an image holds, one or two."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.class_specific.scenes import CANVAS, Digits, digit_scenes
from experiments.pets import RUNS
from experiments.vision import fit, vit


def digit_model(train: Digits, seed: int) -> nn.Module:
    """Trained once and kept: cross-entropy against equal shares for all classes that are present."""
    path = RUNS / f"digits_{seed}.pt"
    torch.manual_seed(seed)
    model = vit(10, CANVAS, width=64, depth=4)

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = digit_scenes(train, 32, generator, alone=0.5)
        return drawn.images, F.normalize(drawn.present(10), p=1, dim=1)

    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        fit(model, batch, 1500, 1.5e-3, seed=seed)
        RUNS.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
    return model.eval()
