"""Which map is right where the logits read several tokens: a mean, a token for each class, windows, choices?

    .venv/bin/python -m experiments.pooled_rows.run

One JSON file in `results/`; the table is written into this folder's README.md.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

import lrptrain
from experiments.command import no_options
from experiments.records import save
from experiments.table import markdown, mean_interval, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "pooled_rows.json"
CLASSES, SIDE, PATCH, CELLS = 3, 32, 8, 4
TRAIN, TEST, EPOCHS, SEEDS = 1024, 48, 10, range(3)
METHODS = ("generic_attention", "attnlrp")


def images(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Noise with a patch at random that is brighter in the channel of the class; the label, and the patch's number."""
    g = torch.Generator().manual_seed(seed)
    label, place = torch.randint(0, CLASSES, (count,), generator=g), torch.randint(0, CELLS**2, (count,), generator=g)
    noise = 0.2 * torch.randn(count, 3, SIDE, SIDE, generator=g)
    for i, (channel, number) in enumerate(zip(label.tolist(), place.tolist(), strict=True)):
        top, left = number // CELLS * PATCH, number % CELLS * PATCH
        noise[i, channel, top : top + PATCH, left : left + PATCH] += 1.5
    return noise, label, place


def vit(**options: Any) -> nn.Module:
    """A small ViT."""
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": CLASSES}
    return VisionTransformer(**{**sizes, **options})


class Rows(nn.Module):
    """A head of its own on the last states of a ViT."""

    def __init__(self, read: Callable[[Tensor], Tensor], width: int, **options: Any) -> None:
        super().__init__()
        self.net, self.read, self.head = vit(num_classes=0, **options), read, nn.Linear(width, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.read(self.net.forward_features(image)))  # type: ignore[operator]


class TokenPerClass(nn.Module):
    """The logit of a class is the mean of a token of its own, as in MCTformer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = vit(num_classes=0, reg_tokens=CLASSES - 1)
        for token in (self.net.cls_token, self.net.reg_token):
            nn.init.normal_(token, std=0.5)  # type: ignore[arg-type]  # else none knows which class it is of

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits."""
        return 8 * self.net.forward_features(image)[:, :CLASSES].mean(-1)  # type: ignore[operator]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "one class token": vit,
    "mean of the patches": lambda: vit(class_token=False, global_pool="avg"),
    "the same, with registers": lambda: vit(class_token=False, global_pool="avg", reg_tokens=4),
    "class token beside the mean": lambda: Rows(lambda x: torch.cat([x[:, 0], x[:, 1:].mean(1)], 1), 96),
    "a token for each class": TokenPerClass,
    "windows, then the mean": lambda: SwinTransformerV2(
        img_size=SIDE, patch_size=4, window_size=4, embed_dim=24, depths=(2, 2), num_heads=(2, 2), num_classes=CLASSES
    ),
}


def trained(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model that knows the task."""
    torch.manual_seed(seed)
    model, (x, label, _) = make(), images(TRAIN, seed)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(EPOCHS):
        for part in torch.randperm(TRAIN).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), label[part]).backward()
            optimizer.step()
    return model.eval()


def measured(model: nn.Module, seed: int) -> dict[str, dict[str, float]]:
    """How often each method's most relevant patch is the planted one, and how much relevance is there."""
    x, label, place = images(TEST, 100 + seed)
    found = {"accuracy": {"": float((model(x).argmax(1) == label).double().mean())}, "first": {}, "share": {}}
    for method in METHODS:
        relevance = lrptrain.attribute(model, x, label, method)
        assert relevance.grid is not None
        scores = relevance.scores.clamp(min=0).view(TEST, 1, *relevance.grid)
        cells = F.adaptive_avg_pool2d(scores, CELLS).flatten(1)
        found["first"][method] = float((cells.argmax(1) == place).double().mean())
        found["share"][method] = float((cells.gather(1, place[:, None])[:, 0] / cells.sum(1).clamp(min=1e-12)).mean())
    return found


def table(results: dict[str, list[dict[str, dict[str, float]]]]) -> str:
    """A row per model."""
    return markdown(
        [
            {"the logits read": name, "accuracy": _mean([each["accuracy"][""] for each in seeds])}
            | {f"`{method}` first": _mean([each["first"][method] for each in seeds]) for method in METHODS}
            | {f"`{method}` share": _mean([each["share"][method] for each in seeds]) for method in METHODS}
            for name, seeds in results.items()
        ]
    )


def _mean(values: list[float]) -> str:
    return "{:.2f} ± {:.2f}".format(*mean_interval(values))


def main() -> None:
    """Measure all models, and write the table."""
    no_options(__doc__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lrptrain.RelevanceWarning)
        results = {name: [measured(trained(make, seed), seed) for seed in SEEDS] for name, make in MODELS.items()}
    save(RESULTS, {"models": results})
    write_between(HERE / "README.md", table(results))


if __name__ == "__main__":
    main()
