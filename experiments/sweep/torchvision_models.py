"""torchvision's models with attention."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from experiments.sweep.case import SAMPLES, Case, Subject, randomised

CLASSES = 3
SWIN = {"patch_size": [4, 4], "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": [4, 4]}
FOUR_D = {"patch_size": [2, 4, 4], "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": [2, 4, 4]}
VIT = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 48, "num_classes": CLASSES}


def cases() -> Iterator[Case]:
    """One per structure."""
    for family, name in (
        ("vit", "VisionTransformer"), ("swin", "SwinTransformer"), ("swin", "SwinTransformerV2"), ("maxvit", "MaxVit"),
    ):  # fmt: skip
        yield Case("torchvision", family, name, "image", partial(subject, name))
    for family, name in (("mvit", "MViT v1"), ("mvit", "MViT v2"), ("swin3d", "SwinTransformer3d")):
        yield Case("torchvision", family, name, "video", partial(subject, name))


def subject(name: str) -> Subject:
    """Build one with a batch."""
    torch.manual_seed(0)
    model, shape = _built(name)
    generator = torch.Generator().manual_seed(1)
    return Subject(randomised(model), torch.randn(SAMPLES, 3, *shape, dtype=torch.float64, generator=generator))


def _built(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    from torchvision.models import MaxVit, SwinTransformer, VisionTransformer, swin_transformer
    from torchvision.models.video import SwinTransformer3d

    if name == "VisionTransformer":
        return VisionTransformer(32, 8, **VIT), (32, 32)
    if name == "SwinTransformer":
        return SwinTransformer(**SWIN, num_classes=CLASSES), (32, 32)
    if name == "SwinTransformerV2":
        parts: dict[str, Any] = {
            "block": swin_transformer.SwinTransformerBlockV2,
            "downsample_layer": swin_transformer.PatchMergingV2,
        }
        return SwinTransformer(**SWIN, **parts, num_classes=CLASSES), (32, 32)
    if name == "MaxVit":
        return MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=CLASSES), (64, 64)
    if name == "SwinTransformer3d":
        return SwinTransformer3d(**FOUR_D, num_classes=CLASSES), (4, 32, 32)
    return _mvit(name), (4, 32, 32)


def _mvit(name: str) -> nn.Module:
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    first = MSBlockConfig(1, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2])
    second = MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1])
    newer = name == "MViT v2"
    flags = {
        "residual_pool": newer, "residual_with_cls_embed": not newer, "rel_pos_embed": newer, "proj_after_attn": newer,
    }  # fmt: skip
    return MViT((32, 32), 4, [first, second], num_classes=CLASSES, **flags)
