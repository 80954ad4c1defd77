"""The classifiers and the segmenters of this experiment."""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from experiments import pets
from experiments.data import dataset
from experiments.segment_pets.photographs import CLASSES, SIZE, Photographs, in_parts
from experiments.vision import logits, vit
from lrptrain.batch.annotations import IGNORED
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.models.classifier import Classifier
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.segmenter import Segmenter, random_windows

STEPS, BATCH, LR = 60, 32, 1e-4
SEGMENT_STEPS, SEGMENT_BATCH, SEGMENT_LR = 120, 16, 1e-3
ZOOM, MASKED, ANNOTATED = 0.7, 0.1, 8
"""Smallest window; share of the training images with a mask, for guidance; how many of them are in a batch."""
GUIDANCE = {"consistency": 1.0, "energy": 1.0}
Batch = dict[str, Tensor]


class Windows(IterableDataset[Batch]):
    """Endless batches of random windows.

    Args:
        split: Images and labels.
        masks: Of the images, 255 where there is none.
        size: Images per batch.
        seed: Of the draw.
        often: Images of which each batch has `ANNOTATED`, the rest from all.
    """

    def __init__(
        self,
        split: Photographs,
        masks: UInt8[Tensor, "n height width"],
        size: int,
        seed: int,
        often: Sequence[int] = (),
    ) -> None:
        self.split, self.masks, self.size, self.seed, self.often = split, masks, size, seed, torch.tensor(often)

    def __iter__(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(self.seed)
        extra = ANNOTATED if len(self.often) else 0
        while True:
            chosen = torch.randint(len(self.masks), (self.size - extra,), generator=generator)
            if extra:
                drawn = self.often[torch.randint(len(self.often), (extra,), generator=generator)]
                chosen = torch.cat([drawn, chosen])
            image, mask = random_windows(self.split.images[chosen], self.masks[chosen], ZOOM, generator)
            yield {"image": image, "mask": mask, "label": self.split.labels[chosen], "sample_id": chosen}


class Breeds(Classifier):
    """The ViT as a LightningModule, for the guidance."""

    batch_keys = ("image",)

    def __init__(self, net: nn.Module) -> None:
        super().__init__(CLASSES, LR, 0.05, "one_cycle")
        self.net = net

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)


def masked(labels: Int[Tensor, " n"]) -> list[int]:
    """The images of which a tenth of the masks are: the first of each breed, in the order of the split."""
    each = round(MASKED * len(labels) / CLASSES)
    return [i for breed in range(CLASSES) for i in (labels == breed).nonzero().flatten()[:each].tolist()]


def classifier(train: Photographs, seed: int, guided: bool, keep: Path) -> nn.Module:
    """The pre-trained ViT: first a new head alone, then all of it; trained once and kept in a file."""
    if keep.exists():
        net = vit(CLASSES, SIZE)
        net.load_state_dict(torch.load(keep, weights_only=True))
        return net.eval()
    torch.manual_seed(seed)
    net = vit(CLASSES, SIZE, dataset("vit")).eval()
    pets.probe(net, pets.Split(train.images, train.masks, train.labels))
    own = masked(train.labels) if guided else []
    masks = torch.full_like(train.masks, IGNORED)
    masks[own] = torch.where(train.masks[own] == IGNORED, train.masks[own], (train.masks[own] > 0).to(torch.uint8))
    callbacks = [RelevanceGuidance(GUIDANCE, sparse=True, max_samples=ANNOTATED, compare_every_n_batches=0, seed=seed)]
    _fit(Breeds(net), Windows(train, masks, BATCH, seed, own), STEPS, callbacks if guided else [])
    keep.parent.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), keep)
    return net.eval()


def segmenter(net: nn.Module, train: Photographs, masks: UInt8[Tensor, "n height width"], seed: int) -> nn.Module:
    """A decoder on a copy of the classifier's ViT, trained along."""
    torch.manual_seed(seed)
    module = Segmenter(PatchDecoder(copy.deepcopy(net), CLASSES, SIZE, blocks=3), SEGMENT_LR)
    _fit(module, Windows(train, masks, SEGMENT_BATCH, seed), SEGMENT_STEPS)
    return module.net.eval()


def _fit(module: pl.LightningModule, batches: Windows, steps: int, callbacks: Sequence[pl.Callback] = ()) -> None:
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    limits: dict[str, Any] = {"max_steps": steps, "max_epochs": -1, "gradient_clip_val": 1.0, "limit_val_batches": 0}
    trainer = pl.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **limits, **quiet)
    trainer.fit(module, DataLoader(batches, batch_size=None))


def predicted(net: nn.Module, split: Photographs) -> Int[Tensor, " n"]:
    """The breed that a classifier says."""
    return logits(net, split.images).argmax(1)


@torch.no_grad()
def probabilities(net: nn.Module, split: Photographs) -> Float[Tensor, "n 4 height width"]:
    """Of background and breeds by a segmenter, mean of each image and its mirror image."""
    views = [(split.images[part], split.images[part].flip(-1)) for part in in_parts(len(split.labels))]
    return torch.cat([(net(one).softmax(1) + net(other).softmax(1).flip(-1)) / 2 for one, other in views])


def as_breed(masks: UInt8[Tensor, "n height width"], labels: Int[Tensor, " n"]) -> UInt8[Tensor, "n height width"]:
    """With pixels of any breed given to one breed per image."""
    return torch.where(masks > 0, (labels + 1).to(torch.uint8)[:, None, None], masks)
