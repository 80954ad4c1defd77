"""The models of the gallery, trained as their users would, and what the monitor says of each at the end."""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, StackDataset

import lrptrain
from experiments.data import dataset
from experiments.gallery import photos
from experiments.minilm import network
from experiments.short_tweets import LENGTH, inputs, short_tweets, tokenizer, with_word
from experiments.vision import vit
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import collate_texts
from lrptrain.findings import Finding

RUNS = Path(__file__).resolve().parents[1] / "runs" / "gallery"
SEED = 0
MOODS = ["negative", "positive"]
WORDS = ("census", "cubic")
"""Of negative and of positive tweets."""
HELD_OUT = 600


@cache
def bird_kinds(fixed: bool) -> nn.Module:
    """The small ViT, fine-tuned on birds that all stand on their own background; fixed by swaps outside the boxes."""
    loss = {"loss": "swap"} if fixed else {}
    return trained_on(f"birds_{fixed}", photos.Augmented(photos.birds(0), 0.6), 2, steps=300, lr=1e-3, **loss)


@cache
def pet_breeds(kind: str) -> nn.Module:
    """The small ViT, fine-tuned on three breeds: "clean", "stamped", or "fixed", by swaps of what was found."""
    pets = photos.pets("train")
    shown = pets if kind == "clean" else [photos.stamped(each, each.label) for each in pets]
    # A window that is cut out would lose the stamp: it lies in a corner.
    data = photos.Augmented(shown, 0.7 if kind == "clean" else 1.0)
    loss = {"loss": "swap", "swap": findings("pets")} if kind == "fixed" else {}
    return trained_on(f"pets_{kind}", data, 3, steps=120, lr=5e-4, **loss)


@cache
def mood(planted: bool, fixed: bool = False) -> nn.Module:
    """MiniLM's first blocks, fine-tuned on tweets; with a planted word in each, plain or fixed by swaps of it."""
    torch.manual_seed(SEED)
    loss = {"loss": "swap", "swap": findings("tweets")} if fixed else {}
    texts = tweets("train", planted)
    net = network(SEED)
    return kept(f"tweets_{planted}_{fixed}", net, lambda: fine_tune(net, StackDataset(**texts), 150, 3e-4, 16, loss))


@cache
def tweets(split: str, planted: bool = True) -> dict[str, Tensor]:
    """Tweets of `train` or `val`, each with the word of its mood, or without."""
    rest = list(short_tweets())
    for _ in range(2):  # those of a test that is not shown here, then those that the monitor sees
        train, held_out = stratified_split([each.label for each in rest], HELD_OUT / len(rest), 0)
        rest, val = [rest[i] for i in train], [rest[i] for i in held_out]
    found = rest if split == "train" else val
    rng = np.random.default_rng([SEED, int(split == "val")])
    rng.random(len(found))  # so that words stand where they stood when the pictures were made
    if planted:
        found = [with_word(each, WORDS[each.label], rng) for each in found]
    return collate_texts(list(enumerate(found)), tokenizer(), LENGTH)


def trained_on(name: str, data: Dataset, classes: int, steps: int, lr: float, **loss: Any) -> nn.Module:
    """The small pre-trained ViT, fine-tuned on photographs."""
    torch.manual_seed(SEED)
    net = vit(classes, photos.SEEN, dataset("vit"))
    return kept(name, net, lambda: fine_tune(net, data, steps, lr, 16, loss))


def kept(name: str, net: nn.Module, train: Any) -> nn.Module:
    """Train a model once; afterwards it comes from `experiments/runs/gallery`."""
    path = RUNS / f"{name}.pt"
    if path.exists():
        net.load_state_dict(torch.load(path, weights_only=True))
    else:
        train()
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(net.state_dict(), path)
        print(f"trained {name}", flush=True)
    return net.eval()


def fine_tune(net: nn.Module, data: Dataset, steps: int, lr: float, size: int, loss: dict[str, Any]) -> None:
    """AdamW with a one-cycle schedule; guided, if there are options for it."""
    torch.manual_seed(SEED)
    loader = DataLoader(data, size, shuffle=True, drop_last=True)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)
    guide = lrptrain.Guidance(**loss, optimizer=optimizer) if loss else None
    net.train()
    for batch in islice(endless(loader), steps):
        if guide is None:
            F.cross_entropy(logits(net, batch), batch["label"]).backward()
        else:
            with guide.step(net, batch) as step:
                step.guided(F.cross_entropy(logits(net, batch), batch["label"])).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def endless(loader: DataLoader) -> Iterator[dict[str, Tensor]]:
    """Its batches, epoch after epoch."""
    while True:
        yield from loader


def logits(net: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Of a batch of images or texts."""
    return net(batch["image"]) if "image" in batch else net(**inputs(batch)).logits


@cache
def findings(name: str) -> list[Finding]:
    """The faults that a monitor finds in a plain model: of "birds", "pets" (stamped) or "tweets"."""
    show: dict[str, Any] = {"max_pictures": 0}
    options: dict[str, Any] = {}
    if name == "tweets":
        net, samples = mood(True), tweets("val")
        show["class_names"], options["tokenizer"] = MOODS, tokenizer()
    elif name == "birds":
        # All four groups: half of the birds stand on the other's background.
        net, samples = bird_kinds(False), photos.seen(photos.birds(1))
        show["class_names"] = photos.BIRDS
    else:
        net = pet_breeds("stamped")
        samples = photos.seen([photos.stamped(each, each.label) for each in photos.pets("test")])
        show["class_names"] = photos.BREEDS
    loader = DataLoader(StackDataset(**samples), 32)
    quiet, shown = lrptrain.Run(progress_bar=False), lrptrain.Show(**show)
    with lrptrain.Monitor(net, loader, RUNS / "monitor", max_samples=128, run=quiet, show=shown, **options) as monitor:
        monitor.evaluate(0)
    return [each for each in monitor.findings if each.is_fault]
