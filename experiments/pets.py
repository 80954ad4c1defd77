"""The pets as tensors, and the ViT that the vision experiments fine-tune on them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from experiments.data import dataset
from experiments.vision import MEAN, STD, augment, fit, logits, vit
from lrptrain.data import ImageMaskFolder

RUNS = Path(__file__).resolve().parent / "runs"
SIZE, STEPS, LR, ZOOM = 48, 60, 1e-4, 0.7


@dataclass(frozen=True)
class Split:
    """Images of one split, normalised, with masks (1 pet, 0 background, 255 ignored) and breeds."""

    images: Float[Tensor, "n 3 height width"]
    masks: UInt8[Tensor, "n height width"]
    labels: Int[Tensor, " n"]


def load(root: Path, size: int, seed: int) -> dict[str, Split]:
    """`train`, `val` (a fifth of the official trainval list, by seed) and `test` (the official test list)."""
    folder = ImageMaskFolder(
        str(root),
        "split.csv",
        masks="trimaps",
        label_column="breed",
        splits=("train", "train", "test"),
        seed=seed,
        size=size,
        mean=MEAN,
        std=STD,
        ignore_values=(3,),
    )
    folder.setup()
    return {name: _stacked(folder.splits[name]) for name in ("train", "val", "test")}


def _stacked(samples) -> Split:
    items = [samples[i] for i in range(len(samples))]
    images, masks = (torch.stack([item[key] for item in items]) for key in ("image", "mask"))
    return Split(images, masks, torch.tensor([item["label"] for item in items]))


def fine_tune(train: Split, weights: Path, seed: int) -> nn.Module:
    """The pre-trained ViT: first a new head alone, then all of it on random windows of the images.

    Kumar et al. 2022, "Fine-tuning can distort pretrained features": with few images the head is to be right first.
    """
    torch.manual_seed(seed)
    model = vit(3, SIZE, weights).eval()
    probe(model, train)

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(train.labels), (32,), generator=generator)
        return augment(train.images[chosen], generator, ZOOM), train.labels[chosen]

    return fit(model, draw, STEPS, LR, seed=seed)


@torch.no_grad()
def probe(model: nn.Module, train: Split) -> None:
    """Set the head to a logistic regression on the frozen features of the images and their mirror images."""
    views = torch.cat([train.images, train.images.flip(-1)]).split(64)
    states = torch.cat([model.forward_head(model.forward_features(part), pre_logits=True) for part in views])
    scaler = StandardScaler().fit(states)
    regression = LogisticRegression(C=0.01, max_iter=1000).fit(scaler.transform(states), train.labels.repeat(2))
    weight = regression.coef_ / scaler.scale_
    model.head.weight.copy_(torch.from_numpy(weight))
    model.head.bias.copy_(torch.from_numpy(regression.intercept_ - weight @ scaler.mean_))


def shuffled(split: Split) -> Split:
    """In one fixed random order, so that the first few are a sample of all."""
    order = torch.randperm(len(split.labels), generator=torch.Generator().manual_seed(0))
    return Split(split.images[order], split.masks[order], split.labels[order])


def trained(seed: int) -> tuple[nn.Module, dict[str, Split]]:
    """The fine-tuned model of a seed and its data; the model is trained once and kept in `experiments/runs`."""
    data = load(dataset("pets"), SIZE, seed)
    data["test"] = shuffled(data["test"])
    path = RUNS / f"pets_{seed}.pt"
    if path.exists():
        return vit(3, SIZE, path).eval(), data
    model = fine_tune(data["train"], dataset("vit"), seed)
    path.parent.mkdir(exist_ok=True)
    torch.save(model.state_dict(), path)
    return model, data


def accuracy(model: nn.Module, split: Split) -> float:
    """Share of the images whose breed is on top."""
    return (logits(model, split.images).argmax(1) == split.labels).float().mean().item()
